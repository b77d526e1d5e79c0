"""What a refusal or a failed gate means, and what its participant can change: plain words beside the exact reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lowbit_ray.report.meanings import CONTRACT, GATES, RULES, Advice

if TYPE_CHECKING:  # a command that was sent the record's JSON has nothing of what measures
    from lowbit_ray.records import Record

__all__ = ["Advice", "advice_on"]


CASES: tuple[tuple[str, Advice], ...] = (
    (
        r"^given up after",
        Advice(
            meaning="The fault is ours, and it was tried several times. It cost no GPU-hours and no scored "
            "submission.",
            change="Hand it in again later; tell the organizers where it comes again.",
        ),
    ),
    (
        r"KL from BF16",
        Advice(
            meaning="On hidden prompts the model predicts next tokens too differently from BF16: above the KL ceiling "
            "it does not count as the same model.",
            change="Keep more bits where they matter (head, embeddings, first and last layers, down projections), use "
            "smaller groups, or calibrate. `lowbit check` reads the precision; the KL needs a measurement: use the "
            "dev split.",
        ),
    ),
    (
        r"no log-?prob|log-?probabilit",
        Advice(
            meaning="The server gave no log-probabilities for the KL probe, so nothing says that it is the same "
            "model.",
            change="Answer `/v1/completions` with `logprobs` (or `prompt_logprobs`) as vLLM does.",
        ),
    ),
    (
        r"host memory|offload",
        Advice(
            meaning="Weights or KV blocks were held in the host's memory. What a model needs has to be on the device.",
            change="Start the server without CPU offload or swap space.",
        ),
    ),
    (
        r"did not serve the workload under|instead of .* and kept",
        Advice(
            meaning="Served again in 1.02 times the peak that it showed plus 4 GiB, it held fewer requests and lost "
            "its rate: it needs more memory than it accounts for.",
            change="Keep buffers, graphs and workspaces within what the accounts show, and free what is held only at "
            "start-up.",
        ),
    ),
    (
        r"outputs (?:are empty|repeat)",
        Advice(
            meaning="While it was timed the server gave outputs without text where BF16 gives some.",
            change="Generate every token under load as you do at rest; do not pad with end-of-sequence tokens.",
        ),
    ),
    (
        r"BF16 finds the timed outputs",
        Advice(
            meaning="What it said while it was timed is much less likely under BF16 than BF16's own words: it was "
            "another model than the one whose quality is measured, or a broken one under load.",
            change="Serve the same computation under load as at rest: check batched kernels, KV-cache scales, long "
            "prompts.",
        ),
    ),
    (
        r"the timed outputs are .* as long",
        Advice(
            meaning="While it was timed it generated shorter outputs than BF16.",
            change="Honour `ignore_eos` and `min_tokens`, and generate as many tokens as were asked for.",
        ),
    ),
    (
        r"private, gated or absent|no such repository|not an exact commit|another commit",
        Advice(
            meaning="The repository could not be read at that commit.",
            change="Make it public, and name the 40-digit commit that `git rev-parse HEAD` prints.",
        ),
    ),
    (
        r"no such bucket or object|nothing is stored under this prefix|: not a folder",
        Advice(
            meaning="Nothing lies at this address.",
            change="Compare bucket and prefix with what was uploaded: the prefix is the folder that config.json lies "
            "in.",
        ),
    ),
    (
        r"the checkpoint is too large",
        Advice(
            meaning="The checkpoint's files are larger together than the task allows.",
            change="Leave out what is not loaded, such as a second copy of the weights.",
        ),
    ),
    (r"neither a source weight nor a companion", CONTRACT["foreign_tensors"]),
    (r"quantization|quant_method|two places", CONTRACT["precision"]),
    (r"could run code|pickle|program|executable", CONTRACT["files"]),
    (r"weight of the source is missing", CONTRACT["source_weights"]),
    (r"config\.json", CONTRACT["configuration"]),
    (
        r"safetensors|tensor|weight",
        Advice(
            meaning="A weight of the source is missing, has another shape, or lacks what its format needs (scales, "
            "zero points).",
            change="Export the checkpoint again with your quantization tool, and hold it against the source with "
            "`lowbit check SOURCE CANDIDATE` before you hand it in: it names every finding, and needs no GPU.",
        ),
    ),
)
"""Pattern of a reason, and advice on it, where no rule is named; the first that fits counts."""

ENGINE: tuple[tuple[str, Advice], ...] = (
    (
        r"did not answer within|the engine (?:died|ended|exited|was ended)|stopped before",
        Advice(
            meaning="The server did not come up, or did not stay up.",
            change="Its start-up log says more: on the submission's page once you have signed in, or `lowbit show ID "
            "--logs`. Start it the same way on your own machine, and mind the time limit.",
        ),
    ),
    (
        r"log-?probabilit",
        Advice(
            meaning="The log-probabilities that it gave cannot be right: not finite, above 0, or of other tokens than "
            "were asked for.",
            change="Return natural logarithms over the whole vocabulary, for each token that was asked for.",
        ),
    ),
    (
        r"",
        Advice(
            meaning="The server came up, but answered wrongly, too little or not at all, so that nothing can be "
            "measured.",
            change="Try the workload's shapes against it (see the rules page): exact prompt and output lengths, "
            "streaming, `usage` in the last chunk.",
        ),
    ),
)
"""The same for a server that failed; the last fits whatever it was."""

ANY = (*CASES[:1], *ENGINE[:1], *CASES[1:])
"""Where it is not known what failed: whose fault it was comes first, as a server's last words may say anything."""


def advice_on(record: Record | Mapping[str, Any]) -> list[Advice]:
    """Advice on what went wrong in a record, or in a record's parsed JSON; empty where nothing did."""
    data = record if isinstance(record, Mapping) else record.model_dump(mode="json", include=READ)
    result: Mapping[str, Any] | None = data["result"]
    if result is not None and result["qualified"]:
        return []
    if result is not None and result["admitted"]:
        return [
            GATES[gate["name"]] for gate in result["gates"] if not gate["passed"] and gate["name"] in GATES
        ]
    fault: Mapping[str, Any] = data.get("fault") or {}
    known = RULES.get(fault.get("rule") or "") or CONTRACT.get(fault.get("rule") or "")
    reason = (result["reason"] if result else data["error"]) or ""
    return [known or _by_words(reason, data["status"], fault.get("kind"))]


READ = {"status", "error", "fault", "result"}
"""What of a record it depends on."""


def _by_words(reason: str, status: str, kind: str | None) -> Advice:
    for pattern, advice in ENGINE if kind == "engine" else ANY:
        if re.search(pattern, reason, re.IGNORECASE):
            return advice
    if status == "failed":
        return Advice(
            meaning="It could not be measured, so there is no score.",
            change="Where the reason is ours it is tried again and costs nothing; otherwise change what the reason "
            "names.",
        )
    return Advice(
        meaning="A rule is broken, so the score is 0.",
        change="Change what the reason names, and hand it in again.",
    )
