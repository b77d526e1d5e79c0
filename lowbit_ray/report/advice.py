"""What a refusal or a failed gate means, and what its participant can change: plain words beside the exact reason."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lowbit_ray.records import Record, Result

__all__ = ["Advice", "advice_on"]


@dataclass(frozen=True, slots=True)
class Advice:
    """One reason in plain words."""

    meaning: str
    change: str


CASES: tuple[tuple[str, str, str], ...] = (
    (
        r"KL from BF16",
        "On hidden prompts the model predicts next tokens too differently from BF16: above the KL ceiling it does not "
        "count as the same model.",
        "Keep more bits where they matter (head, embeddings, first and last layers, down projections), use smaller "
        "groups, or calibrate. `lowbit check` reads the precision; the KL needs a measurement: use the dev split.",
    ),
    (
        r"no log-?prob|log-?probabilit",
        "The server gave no log-probabilities for the KL probe, so nothing says that it is the same model.",
        "Answer `/v1/completions` with `logprobs` (or `prompt_logprobs`) as vLLM does.",
    ),
    (
        r"host memory|offload",
        "Weights or KV blocks were held in the host's memory. What a model needs has to be on the device.",
        "Start the server without CPU offload or swap space.",
    ),
    (
        r"did not serve the workload under|instead of .* and kept",
        "Served again in 1.02 times the peak that it showed plus 4 GiB, it held fewer requests and lost its rate: it "
        "needs more memory than it accounts for.",
        "Keep buffers, graphs and workspaces within what the accounts show, and free what is held only at start-up.",
    ),
    (
        r"outputs (?:are empty|repeat)",
        "While it was timed the server gave outputs without text where BF16 gives some.",
        "Generate every token under load as you do at rest; do not pad with end-of-sequence tokens.",
    ),
    (
        r"BF16 finds the timed outputs",
        "What it said while it was timed is much less likely under BF16 than BF16's own words: it was another model "
        "than the one whose quality is measured, or a broken one under load.",
        "Serve the same computation under load as at rest: check batched kernels, KV-cache scales, long prompts.",
    ),
    (
        r"the timed outputs are .* as long",
        "While it was timed it generated shorter outputs than BF16.",
        "Honour `ignore_eos` and `min_tokens`, and generate as many tokens as were asked for.",
    ),
    (
        r"config\.json",
        "The checkpoint's configuration is not the source's: architecture and RoPE fields have to be equal.",
        "Copy the named field from the source's config.json. Only `quantization_config` may be added.",
    ),
    (
        r"neither a source weight nor a companion",
        "The checkpoint holds tensors that the source does not have and that no quantization format needs.",
        "Remove them; together they may hold 1 % of the source's bytes.",
    ),
    (
        r"pickle|program|executable",
        "A file beside the weights can run code when it is loaded.",
        "Keep safetensors, JSON and text files only on the checkpoint track.",
    ),
    (
        r"safetensors|tensor|weight",
        "A weight of the source is missing, has another shape, or lacks what its format needs (scales, zero points).",
        "Export the checkpoint again with your quantization tool, and hold it against the source with `lowbit check "
        "SOURCE CANDIDATE` before you hand it in: it names every finding, and needs no GPU.",
    ),
    (
        r"private, gated or absent|no such repository|not an exact commit|another commit",
        "The repository could not be read at that commit.",
        "Make it public, and name the 40-digit commit that `git rev-parse HEAD` prints.",
    ),
    (
        r"did not answer within|the engine (?:died|ended|exited)|stopped before",
        "The server did not come up.",
        "Read the tail of its start-up log below, start it the same way on your own machine, and mind the time limit.",
    ),
    (
        r"the server does not|answer|requests? failed|status \d{3}",
        "The server came up, but answered wrongly, too little or not at all, so that nothing can be measured.",
        "Try the workload's shapes against it (see the rules page): exact prompt and output lengths, streaming, "
        "`usage` in the last chunk.",
    ),
)
"""Pattern of the reason, what it means, what to change; the first that fits counts."""

RULES = {
    "offload": Advice(
        "Weights or KV blocks were held in the host's memory. What a model needs has to be on the device.",
        "Start the server without CPU offload or swap space.",
    ),
    "host memory": Advice(
        "The engine keeps in the host's memory what its device peak leaves out.",
        "Keep weights, KV cache and buffers on the device, where they are counted.",
    ),
    "memory accounts": Advice(
        "The device counts more memory than the engine's own accounts say.",
        "Account for every allocation: workspaces, graphs, second copies. An engine without accounts is counted by "
        "the device.",
    ),
    "hard cap": Advice(
        "Served again in 1.02 times the peak that it showed plus 4 GiB, it held fewer requests and lost its rate: it "
        "needs more memory than it accounts for.",
        "Keep buffers, graphs and workspaces within what the accounts show, and free what is held only at start-up.",
    ),
    "audit": Advice(
        "BF16 does not believe that what was said while it was timed is this model's: another computation ran under "
        "load than the one whose quality is measured, or it breaks under load.",
        "Serve the same computation under load as at rest: check batched kernels, KV-cache scales, long prompts, and "
        "that outputs are neither empty nor cut short.",
    ),
    "answer cache": Advice(
        "A prompt that was asked before is answered faster than a fresh one: answers are remembered.",
        "Turn prefix and response caches off. Every timed token has to be computed.",
    ),
    "withheld tokens": Advice(
        "The first tokens of an answer are held back, which makes the time between tokens look shorter.",
        "Send each token when it is there.",
    ),
    "two faces": Advice(
        "Asked as a probe, the engine prefers other tokens than those it said while it was timed.",
        "Take the same path for every request, streamed or not, with log-probabilities or without.",
    ),
    "log-probabilities": Advice(
        "The log-probabilities do not belong to the tokens that the engine says.",
        "Return the log-softmax of the very logits that the token was chosen from.",
    ),
    "token counts": Advice(
        "The text that was sent is not the text of the token ids that were counted.",
        "Send the ids that were generated, and their text; count each once in `usage`.",
    ),
    "second model": Advice(
        "Weights were read after the engine had started to answer: another model may have been loaded.",
        "Load everything before the first answer.",
    ),
    "network": Advice(
        "The engine talked to another host.",
        "Compute on the pod alone; remove telemetry and downloads from `launch.sh`.",
    ),
}
"""Advice by the name of the engine rule that was broken."""

GATES = {
    "accuracy": Advice(
        "On at least one hidden domain it answers worse than BF16 by more than the tier allows.",
        "Which domain is not released. The public dev sets have the same five kinds of items: run them with both "
        "models, and give bits back to the layers that cost most.",
    ),
    "speed": Advice(
        "Less its measurement error, its mean speed over the workloads is below the floor.",
        "See the workloads below for the slow one: weight-only formats often lose where prompts are long and many "
        "requests run at once, as they compute in 16 bits.",
    ),
    "length": Advice(
        "It generates much more or fewer tokens than BF16 for the same questions.",
        "Loops and early ends are signs of too few bits; check the chat template and generation_config.json too.",
    ),
}


def advice_on(record: Record) -> list[Advice]:
    """Advice on what went wrong; empty where nothing did."""
    result = record.result
    if result is not None and result.qualified:
        return []
    if result is not None and result.admitted:
        return _gates(result)
    if record.fault is not None and record.fault.rule in RULES:
        return [RULES[record.fault.rule]]
    reason = (result.reason if result else record.error) or ""
    for pattern, meaning, change in CASES:
        if re.search(pattern, reason, re.IGNORECASE):
            return [Advice(meaning, change)]
    if record.status == "failed":
        return [
            Advice(
                "It could not be measured, so there is no score.",
                "Where the reason is ours it is tried again and costs nothing; otherwise change what the reason names.",
            )
        ]
    return [
        Advice("A rule is broken, so the score is 0.", "Change what the reason names, and hand it in again.")
    ]


def _gates(result: Result) -> list[Advice]:
    return [GATES[gate.name] for gate in result.gates if not gate.passed and gate.name in GATES]
