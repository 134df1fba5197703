#!/usr/bin/env bash
# Asks MemoryMark for a batch size, waits for the answer and prints the verdict. Needs curl 7.76+.
#   export MEMORYMARK_TOKEN=$(.venv/bin/python manage.py token NAME)
#   docs/analyze.sh '{"model": "bert", "gpu": "a10", "current_batch_size": 16, "batch_multiple": 8}'
set -euo pipefail
site=${MEMORYMARK_URL:-http://127.0.0.1:8000}
fields=${1:-'{"model": "bert", "gpu": "a10"}'}

api() { # METHOD ADDRESS [BODY]; a refusal prints the messages for each field
    curl --silent --show-error --fail-with-body --request "$1" \
        --header "Authorization: Token ${MEMORYMARK_TOKEN:?make one with: python manage.py token NAME}" \
        --header "Content-Type: application/json" ${3:+--data "$3"} "$2"
}

field() { # NAME.NAME of the JSON on standard input
    python3 -c 'import functools, json, sys
print(functools.reduce(lambda value, key: value[key], sys.argv[1].split("."), json.load(sys.stdin)))' "$1"
}

analysis=$(api POST "$site/api/v1/analyses/" "$fields") || { echo "$analysis" >&2; exit 2; }
url=$(field url <<<"$analysis")
while [[ $(field status <<<"$analysis") =~ ^(queued|running)$ ]]; do
    sleep 1
    analysis=$(api GET "$url")
done
if [[ $(field status <<<"$analysis") == failed ]]; then
    field failure.reason <<<"$analysis" >&2
    exit 1
fi
field result.verdict <<<"$analysis"
