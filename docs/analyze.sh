#!/usr/bin/env bash
# Asks MemoryMark for a batch size, waits for its decision and prints the verdict. Needs curl 7.76+.
#   export MEMORYMARK_TOKEN=$(.venv/bin/python manage.py token NAME)
#   docs/analyze.sh '{"model": "bert", "gpu": "a10", "current_batch_size": 16, "batch_multiple": 8}'
set -euo pipefail
: "${MEMORYMARK_TOKEN:?make one on the page API tokens, or with: python manage.py token NAME}"
site=${MEMORYMARK_URL:-http://127.0.0.1:8000}
fields=${1:-'{"model": "bert", "gpu": "a10"}'}

api() { # METHOD ADDRESS [BODY]
    curl --silent --show-error --fail-with-body --request "$1" \
        --header "Authorization: Token $MEMORYMARK_TOKEN" \
        --header "Content-Type: application/json" --header "Idempotency-Key: $key" \
        ${3:+--data "$3"} "$2"
}

field() { # NAME.NAME of the JSON on standard input
    python3 -c 'import functools, json, sys
print(functools.reduce(lambda value, key: value[key], sys.argv[1].split("."), json.load(sys.stdin)))' "$1"
}

key=$(python3 -c 'import uuid; print(uuid.uuid4())') # however often it is sent, it is one analysis
analysis=$(api POST "$site/api/v1/analyses/?wait=30" "$fields") || {
    field detail <<<"$analysis" >&2 2>/dev/null || true # without an answer, curl has said why
    exit 2
}
url=$(field url <<<"$analysis")
while [[ $(field decision_waits_for <<<"$analysis") =~ ^(analysis|plan)$ ]]; do
    sleep 1 # a site with many that wait answers at once
    analysis=$(api GET "$url?wait=30")
done
if [[ $(field status <<<"$analysis") != succeeded ]]; then
    field failure.reason <<<"$analysis" >&2
    exit 1
fi
field result.verdict <<<"$analysis"
