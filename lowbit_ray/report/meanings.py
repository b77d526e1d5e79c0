"""What a broken rule or a failed gate means, and what its participant can change: plain words by the rule's name."""

from __future__ import annotations

from lowbit_ray.rules import _Described

__all__ = ["CONTRACT", "GATES", "RULES", "Advice"]


class Advice(_Described):
    """One reason in plain words."""

    meaning: str
    """What it means."""
    change: str
    """What to change."""


CONTRACT = {
    "configuration": Advice(
        meaning="The checkpoint's configuration is not the source's: architecture and RoPE fields have to be equal.",
        change="Copy the named field from the source's config.json. Only `quantization_config` may be added.",
    ),
    "source_weights": Advice(
        meaning="A weight of the source is in the checkpoint in no form.",
        change="Export the checkpoint again with all layers, under the names of the source; a shard may be missing "
        "from model.safetensors.index.json. `lowbit check SOURCE CANDIDATE` names every such weight, and needs no "
        "GPU.",
    ),
    "foreign_tensors": Advice(
        meaning="The checkpoint holds tensors that the source does not have and that no quantization format needs.",
        change="Remove them; together they may hold 1 % of the source's bytes.",
    ),
    "companions": Advice(
        meaning="A quantized weight lacks what it is read with: scales, zero points or indices are missing, or have "
        "another shape than its format asks for.",
        change="Export it again with the quantization tool's own writer, and hold it against the source with `lowbit "
        "check SOURCE CANDIDATE`: it names tensor and shape, and needs no GPU.",
    ),
    "precision": Advice(
        meaning="What the checkpoint says of its quantization cannot be read: the method or a field is not known "
        "here, it is not said at all, two places contradict each other, or the tensors are of another width.",
        change="Leave `quantization_config` in config.json as the quantization tool wrote it, in one place. The "
        "formats that are read are listed in docs/formats.md; `lowbit check` names the field without a GPU.",
    ),
    "files": Advice(
        meaning="A file beside the weights can run code when it is loaded, or no engine would load it.",
        change="Keep safetensors, JSON and text files only on the checkpoint track, each safetensors file named in "
        "model.safetensors.index.json.",
    ),
    "execution": Advice(
        meaning="Something in config.json makes an engine run other code, or compute something else, than the source.",
        change="Remove the named field.",
    ),
}
"""Advice by the rule of the contract that was broken."""

RULES = {
    "offload": Advice(
        meaning="Weights or KV blocks were held in the host's memory. What a model needs has to be on the device.",
        change="Start the server without CPU offload or swap space.",
    ),
    "host memory": Advice(
        meaning="The engine keeps in the host's memory what its device peak leaves out.",
        change="Keep weights, KV cache and buffers on the device, where they are counted.",
    ),
    "memory accounts": Advice(
        meaning="The device counts more memory than the engine's own accounts say.",
        change="Account for every allocation: workspaces, graphs, second copies. An engine without accounts is "
        "counted by the device.",
    ),
    "hard cap": Advice(
        meaning="Served again in 1.02 times the peak that it showed plus 4 GiB, it held fewer requests and lost its "
        "rate: it needs more memory than it accounts for.",
        change="Keep buffers, graphs and workspaces within what the accounts show, and free what is held only at "
        "start-up.",
    ),
    "audit": Advice(
        meaning="BF16 does not believe that what was said while it was timed is this model's: another computation ran "
        "under load than the one whose quality is measured, or it breaks under load.",
        change="Serve the same computation under load as at rest: check batched kernels, KV-cache scales, long "
        "prompts, and that outputs are neither empty nor cut short.",
    ),
    "answer cache": Advice(
        meaning="A prompt that was asked before is answered faster than a fresh one: answers are remembered.",
        change="Turn prefix and response caches off. Every timed token has to be computed.",
    ),
    "withheld tokens": Advice(
        meaning="The first tokens of an answer are held back, which makes the time between tokens look shorter.",
        change="Send each token when it is there.",
    ),
    "two faces": Advice(
        meaning="Asked as a probe, the engine prefers other tokens than those it said while it was timed.",
        change="Take the same path for every request, streamed or not, with log-probabilities or without.",
    ),
    "log-probabilities": Advice(
        meaning="The log-probabilities do not belong to the tokens that the engine says.",
        change="Return the log-softmax of the very logits that the token was chosen from.",
    ),
    "token counts": Advice(
        meaning="The text that was sent is not the text of the token ids that were counted.",
        change="Send the ids that were generated, and their text; count each once in `usage`.",
    ),
    "second model": Advice(
        meaning="Weights were read after the engine had started to answer: another model may have been loaded.",
        change="Load everything before the first answer.",
    ),
    "network": Advice(
        meaning="The engine talked to another host.",
        change="Compute on the pod alone; remove telemetry and downloads from `launch.sh`.",
    ),
}
"""Advice by the name of the engine rule that was broken."""

GATES = {
    "accuracy": Advice(
        meaning="On at least one hidden domain it answers worse than BF16 by more than the tier allows.",
        change="Which domain is not released. The public dev sets have the same five kinds of items: run them with "
        "both models, and give bits back to the layers that cost most.",
    ),
    "speed": Advice(
        meaning="Less its measurement error, its mean speed over the workloads is below the floor.",
        change="Look for the slow workload: weight-only formats often lose where prompts are long and many requests "
        "run at once, as they compute in 16 bits.",
    ),
    "length": Advice(
        meaning="It generates much more or fewer tokens than BF16 for the same questions.",
        change="Loops and early ends are signs of too few bits; check generation_config.json too, and on the engine "
        "track the chat template.",
    ),
}
