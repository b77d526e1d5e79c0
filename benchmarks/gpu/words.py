"""Text, a tokenizer and an order of tokens, all made on the spot: a machine without a network has nothing else.

Text: docstrings of the standard library and of a few large packages. Tokenizer: byte-level BPE trained on it, with
as many ids as Qwen3 has; what training does not fill are ids that no text becomes.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import random
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

__all__ = ["END", "Successors", "make_tokenizer", "successors", "write_text"]

PACKAGES = ("numpy", "scipy", "sympy", "pandas", "networkx", "torch")
LEAST_CHARACTERS = 80
FILE_CHARACTERS = 1_000_000
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END = SPECIAL[2]
CHAT_TEMPLATE = (
    "{%- for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Successors = dict[int, int]
"""The token that follows each one: one cycle through all tokens that text becomes, and the end."""


def write_text(folder: Path, characters: int) -> None:
    """Writes about `characters` of docstrings as numbered text files."""
    folder.mkdir(parents=True, exist_ok=True)
    texts, size, number = list[str](), 0, 0
    for text in _docstrings():
        texts.append(text)
        size += len(text)
        if size >= FILE_CHARACTERS or number * FILE_CHARACTERS + size >= characters:
            (folder / f"{number:03d}.txt").write_text("\n\n".join(texts), encoding="utf-8", errors="replace")
            texts, size, number = [], 0, number + 1
            if number * FILE_CHARACTERS >= characters:
                return
    if texts:
        (folder / f"{number:03d}.txt").write_text("\n\n".join(texts), encoding="utf-8", errors="replace")


def _docstrings() -> Iterator[str]:
    roots = [Path(sysconfig.get_path("stdlib"))]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        roots += [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    seen: set[str] = set()
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            if {"site-packages", "dist-packages", "test", "tests"}.isdisjoint(path.relative_to(root).parts):
                for text in _docstrings_of(path):
                    if text not in seen:
                        seen.add(text)
                        yield text


def _docstrings_of(path: Path) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and len(text) >= LEAST_CHARACTERS:
                yield text


def make_tokenizer(text: Path, folder: Path, *, trained: int, plain: int, vocabulary: int) -> int:
    """Trains on the files of `text`, writes tokenizer.json and tokenizer_config.json; how many ids text becomes.

    trained     ids of the byte-level BPE
    plain       ids before the special tokens, filled up with names that no text becomes
    vocabulary  all ids, the special tokens' among them
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=trained, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train([str(path) for path in sorted(text.glob("*.txt"))], trainer)
    whole = json.loads(tokenizer.to_str())
    words: dict[str, int] = whole["model"]["vocab"]
    used = len(words)
    words.update({f"unused{number}": number for number in range(used, plain)})
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    spare = [f"<|spare{number}|>" for number in range(vocabulary - plain - len(SPECIAL))]
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in (*SPECIAL, *spare)])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": END,
        "pad_token": SPECIAL[0],
        "model_max_length": 40960,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
    return used


def successors(folder: Path, used: int, answer_tokens: int, seed: int) -> Successors:
    """One cycle through all ids that text becomes, in a random order.

    After the template's last token come `answer_tokens` pieces of words without blanks, then the end: so an answer
    over chat has that length, as one word; an item that asks for few words is passed by it.
    """
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    names = {number: tokenizer.id_to_token(number) for number in range(used)}
    start = tokenizer.encode("<|im_start|>assistant\n").ids[-1]
    letters = [number for number, name in names.items() if re.fullmatch("[a-z]+", name) and number != start]
    order = random.Random(seed)
    answer = _one_word(tokenizer, order.sample(letters, len(letters)), answer_tokens - 1)
    rest = [number for number in names if number not in {start, *answer}]
    order.shuffle(rest)
    cycle = [start, *answer, tokenizer.token_to_id(END), *rest]
    return dict(zip(cycle, [*cycle[1:], cycle[0]], strict=True))


def _one_word(tokenizer: Tokenizer, pieces: list[int], count: int) -> list[int]:
    """`count` of the pieces in an order whose text the tokenizer cuts into the same pieces again.

    Counts of an answer's tokens are checked by tokenizing its text; pieces put together at random would be cut into
    others, and more of them.
    """
    word: list[int] = []
    for piece in pieces:
        if len(word) == count:
            break
        text = str(tokenizer.decode([*word, piece]))
        if tokenizer.encode(text, add_special_tokens=False).ids == [*word, piece]:
            word.append(piece)
    if len(word) < count:
        raise ValueError(f"only {len(word)} of {count} pieces form one word; train on more text")
    return word
