"""Beam search: the texts that it follows beside one another, and their scores.

A search with k beams reads k copies of each prompt. The scores of all words of all beams stay until
those of the next token replace them, twice: as the model returns them and as logarithms. Then the
k best continuations of each prompt go on, so that every layer of the cache is copied in their
order. Source: ``GenerationMixin._beam_search`` in transformers 5.23, whose own functions choose.
"""

from __future__ import annotations

from typing import Any

import torch

from ..core.errors import EngineError

_NEVER = -1e9
"""The score of a beam that is not there yet."""


class Beams:
    """The beams of all prompts.

    Args:
        model: Its class chooses among continuations.
        ids: The prompts, each as often as it has beams, of shape (B · beams, tokens).
        beams: For each prompt.
        new_tokens: For each text.

    Raises:
        EngineError: If transformers is too old.
    """

    def __init__(self, model: Any, ids: torch.Tensor, beams: int, new_tokens: int) -> None:
        if not hasattr(model, "_get_top_k_continuations"):
            raise EngineError("this release of transformers has another beam search; update it")
        self._model, self._beams, self._prompt = model, beams, ids.shape[1]
        self._count = count = len(ids) // beams
        end = model.generation_config.eos_token_id
        ends = 0 if end is None else len(end) if isinstance(end, list) else 1
        self._kept = max(2, 1 + ends) * beams
        self._is_best = torch.arange(self._kept, device=ids.device) < beams
        shape, device = (count, beams), ids.device
        whole = self._prompt + new_tokens
        self._running = torch.zeros((*shape, whole), dtype=torch.int64, device=device)
        self._running[:, :, : self._prompt] = ids.view(*shape, -1)
        self._finished = self._running.clone()
        self._running_scores = torch.zeros(shape, device=device)
        self._running_scores[:, 1:] = _NEVER
        self._scores = torch.full(shape, _NEVER, device=device)
        self._is_finished = torch.zeros(shape, dtype=torch.bool, device=device)
        self._may_improve = torch.ones((count, 1), dtype=torch.bool, device=device)
        self._origins = torch.full((*shape, new_tokens), -1, dtype=torch.int32, device=device)
        self._finished_origins = self._origins.clone()
        self._log_probabilities = self._found_scores = torch.empty(0)

    def score(self, logits: torch.Tensor) -> None:
        """Take the scores of all words, of shape (B · beams, V)."""
        self._log_probabilities = torch.nn.functional.log_softmax(logits, dim=-1)

    def choose(self, length: int) -> torch.Tensor:
        """The beams that go on with ``length`` tokens read: where each comes from, (B · beams)."""
        model, beams, begin = self._model, self._beams, self._prompt
        each = self._log_probabilities.view(self._count, beams, -1)
        scores = (each + self._running_scores[:, :, None]).reshape(self._count, -1)
        self._log_probabilities = scores
        del each
        self._found_scores, found, origins = model._get_top_k_continuations(
            accumulated_log_probs=scores,
            running_sequences=self._running,
            running_beam_indices=self._origins,
            cur_len=length,
            decoder_prompt_len=begin,
            do_sample=False,
            beams_to_keep=self._kept,
            num_beams=beams,
            batch_size=self._count,
        )
        ends = torch.zeros(found.shape[:2], dtype=torch.bool, device=found.device)
        self._running, self._running_scores, self._origins = (
            model._get_running_beams_for_next_iteration(
                topk_log_probs=self._found_scores,
                topk_running_sequences=found,
                topk_running_beam_indices=origins,
                next_token_hits_stopping_criteria=ends,
                num_beams=beams,
            )
        )
        self._finished, self._scores, self._finished_origins, self._is_finished = (
            model._update_finished_beams(
                sequences=self._finished,
                topk_running_sequences=found,
                beam_scores=self._scores,
                topk_log_probs=self._found_scores,
                beam_indices=self._finished_origins,
                topk_running_beam_indices=origins,
                is_early_stop_heuristic_unsatisfied=self._may_improve,
                is_sent_finished=self._is_finished,
                next_token_hits_stopping_criteria=ends,
                top_num_beam_mask=self._is_best,
                num_beams=beams,
                cur_len=length,
                decoder_prompt_len=begin,
                length_penalty=1.0,
                early_stopping=False,
            )
        )
        order: torch.Tensor = self._origins[..., length - begin].reshape(-1)
        return order
