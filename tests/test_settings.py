"""Settings come from the environment alone, and what they name does not depend on where a process runs."""

import stat
from pathlib import Path

import pytest

from lowbit_ray.settings import Settings

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("name", ["ledger", "cache", "rules", "tasks", "token_file"])
def test_a_relative_path_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(f"LOWBIT_{name.upper()}", "here/it-is")
    assert Path(getattr(Settings(), name)) == tmp_path / "here" / "it-is"


def test_the_address_of_a_bucket_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWBIT_LEDGER", "s3://bucket/prefix")
    assert Settings().ledger == "s3://bucket/prefix"


def test_the_secret_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    first = Settings(cache=tmp_path).secret_bytes()
    assert len(first) == 32
    assert Settings(cache=tmp_path).secret_bytes() == first
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_a_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWBIT_SECRET", "5e" * 32)
    assert "5e5e" not in repr(Settings())


def test_the_command_of_vllm_is_split_as_a_shell_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWBIT_VLLM_COMMAND", "'/with space/python' -m vllm.entrypoints.openai.api_server")
    assert Settings().vllm() == ("/with space/python", "-m", "vllm.entrypoints.openai.api_server")


@pytest.mark.parametrize("name", Settings.model_fields)
def test_readme_has_every_variable(name: str) -> None:
    settings_of_readme = README.read_text().partition("\n## Settings\n")[2].partition("\n## ")[0]
    assert f"`LOWBIT_{name.upper()}`" in settings_of_readme
