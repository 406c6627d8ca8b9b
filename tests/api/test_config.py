"""Settings: which source wins, what is refused and how it is named, what is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.config import ConfigError, Settings, load, to_json
from api.serve import where_to_point
from api.sidecar import Endpoints


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "recloser.toml"
    path.write_text('api_port = 1\notlp_http_port = 1\notlp_grpc_port = 1\n[clickhouse]\nuser = "file"\n')
    return path


def test_flags_win_over_variables_and_variables_over_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECLOSER_OTLP_HTTP_PORT", "2")
    monkeypatch.setenv("RECLOSER_API_PORT", "2")
    settings = load({"api_port": 3}, file)
    assert (settings.api_port, settings.otlp_http_port, settings.otlp_grpc_port) == (3, 2, 1)


def test_sections_are_merged_key_by_key(file: Path) -> None:
    settings = load({"clickhouse": {"url": "http://host:8123"}}, file)
    assert (settings.clickhouse.url, settings.clickhouse.user) == ("http://host:8123", "file")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("api_prot = 1", "api_prot"),
        ("[ingest]\nflush_rows = 0", "ingest.flush_rows"),
        ('[clickhouse]\nurl = "host:9000"', "clickhouse.url"),
        ('[tls]\ncert = "a.pem"', "tls"),
        ('[[tokens]]\ntoken = "short"', "tokens.0.token"),
        ("api_port = \n", "line 1"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "recloser.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load({}, path)
    assert str(path) in str(caught.value)
    assert told in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml: No such file"):
        load({}, tmp_path / "gone.toml")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://agent:p%40ss@host:8443/db", ("https://host:8443/db", "agent", "p@ss")),
        ("http://agent@host:8123", ("http://host:8123", "agent", "kept")),
        ("http://host:8123", ("http://host:8123", "file", "kept")),
    ],
)
def test_credentials_in_the_url_are_used_and_not_shown(
    file: Path, monkeypatch: pytest.MonkeyPatch, url: str, told: tuple[str, str, str]
) -> None:
    monkeypatch.setenv("RECLOSER_CLICKHOUSE__PASSWORD", "kept")
    settings = load({"clickhouse": {"url": url}}, file)
    store = settings.clickhouse
    assert (store.url, store.user, store.password.get_secret_value()) == told
    shown = where_to_point(Endpoints("127.0.0.1", 1, 2, 3), settings) + repr(settings)
    assert told[2] not in shown
    assert "p%40ss" not in shown


def test_settings_survive_the_way_to_another_process(file: Path) -> None:
    settings = load({"clickhouse": {"url": "http://agent:secret@host:8123"}}, file)
    assert to_json(Settings.model_validate(to_json(settings))) == to_json(settings)
