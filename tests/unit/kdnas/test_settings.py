from __future__ import annotations

from pathlib import Path

import pytest

from kdnas.errors import SpecError
from kdnas.reach import ANYWHERE
from kdnas.settings import Settings


def test_everything_lies_under_home_by_default(tmp_path: Path) -> None:
    home = tmp_path / "not made"
    settings = Settings.from_environment({"KDNAS_HOME": str(home)})
    assert settings.home == home
    assert settings.database_url == f"sqlite:///{home / 'kdnas.db'}"
    assert settings.store_url == str(home / "store")
    assert (settings.ray_address, settings.auto_migrate) == (None, False)
    assert not home.exists()


def test_the_default_home_is_the_users() -> None:
    assert Settings.from_environment({}).home == Path("~/.kdnas").expanduser()


def test_every_setting_can_be_given(tmp_path: Path) -> None:
    settings = Settings.from_environment(
        {
            "KDNAS_HOME": str(tmp_path),
            "KDNAS_DATABASE_URL": "postgresql://host/db",
            "KDNAS_STORE": "s3://bucket/x",
            "KDNAS_RAY_ADDRESS": "ray:6379",
            "KDNAS_AUTO_MIGRATE": "1",
            "KDNAS_TEACHER": "minilm",
            "KDNAS_CORPUS": "pydocs",
            "KDNAS_LOCKS": str(tmp_path / "locks"),
        }
    )
    assert settings == Settings(
        home=tmp_path,
        database_url="postgresql://host/db",
        store_url="s3://bucket/x",
        ray_address="ray:6379",
        auto_migrate=True,
        teacher="minilm",
        corpus="pydocs",
        locks=tmp_path / "locks",
    )


def test_only_work_for_the_service_is_held_to_the_data_roots(tmp_path: Path) -> None:
    roots = f"{tmp_path / 'data'}:s3://bucket/x:file://{tmp_path / 'more'}"
    settings = Settings.from_environment({"KDNAS_HOME": str(tmp_path), "KDNAS_DATA_ROOTS": roots})
    assert settings.reach == ANYWHERE
    assert settings.for_service().reach.roots == (
        tmp_path / "data",
        tmp_path / "more",
        tmp_path / "students",
    )


def test_empty_values_count_as_not_given() -> None:
    empty = Settings.from_environment({"KDNAS_STORE": "", "KDNAS_TEACHER": "", "KDNAS_HOME": ""})
    assert empty == Settings.from_environment({})


def test_without_a_mapping_the_process_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDNAS_TEACHER", "./mine")
    assert Settings.from_environment().teacher == "./mine"


@pytest.mark.parametrize(("text", "seconds"), [("", 600.0), ("0", 0.0), ("2.5", 2.5)])
def test_how_long_the_database_is_waited_for(text: str, seconds: float) -> None:
    found = Settings.from_environment({"KDNAS_DATABASE_PATIENCE_SECONDS": text})
    assert found.database_patience_seconds == seconds


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "soon"])
def test_no_time_to_wait_for_the_database(text: str) -> None:
    with pytest.raises(SpecError, match=f"KDNAS_DATABASE_PATIENCE_SECONDS is '{text}', which"):
        Settings.from_environment({"KDNAS_DATABASE_PATIENCE_SECONDS": text})


def test_a_store_says_no_password() -> None:
    with pytest.raises(SpecError, match="KDNAS_STORE holds a password, which logs") as raised:
        Settings.from_environment({"KDNAS_STORE": "ftp://user:pa55word@host/kdnas"})
    assert "pa55word" not in str(raised.value)


def test_proxies_are_addresses_and_networks() -> None:
    given = {"KDNAS_TRUSTED_PROXIES": " 10.0.0.5, 10.1.0.0/16,,fd00::/8 "}
    found = Settings.from_environment(given).trusted_proxies
    assert [str(network) for network in found] == ["10.0.0.5/32", "10.1.0.0/16", "fd00::/8"]
    assert Settings.from_environment({}).trusted_proxies == ()


@pytest.mark.parametrize("text", ["*", "proxy", "10.0.0.1/8", "10.0.0.5 10.0.0.6", "10.0.0"])
def test_what_is_no_proxy_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"KDNAS_TRUSTED_PROXIES has .* no address and no network"):
        Settings.from_environment({"KDNAS_TRUSTED_PROXIES": f"10.0.0.1,{text}"})
