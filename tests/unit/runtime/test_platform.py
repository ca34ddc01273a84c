"""Where gloo cannot work, nothing is begun."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from daisychain.app import run_agent, run_alone
from daisychain.config import load_config
from daisychain.errors import ConfigError


def test_native_windows_refuses_a_node_and_a_run_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    state = tmp_path / "state"
    config = load_config({"state_folder": state}, {})
    for work in (run_agent(config, lambda _: None), run_alone(config, tmp_path, lambda _: None)):
        with pytest.raises(ConfigError, match=r"native Windows.*Docker Desktop.*WSL"):
            work.send(None)
    assert not state.exists()
