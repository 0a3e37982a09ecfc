"""A few of the kills that ``benchmarks/chaos.py`` makes by the hundred, one of each sort."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kdnas.db.migrate import upgrade
from kdnas.testing.chaos import Ground, Target

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("a folder with spaces")
    (folder / "home").mkdir()
    url = f"sqlite:///{folder / 'home' / 'kdnas.db'}"
    upgrade(url)
    with Ground(folder, url, seed=0) as made:
        yield made


@pytest.mark.parametrize(
    ("label", "target"),
    [("search", "command"), ("distillation", "service"), ("sweep", "runner")],
)
def test_nothing_is_lost_nor_made_twice_nor_left_behind(
    ground: Ground, label: str, target: Target
) -> None:
    (work,) = [work for work in ground.works if work.label == label]
    struck = ground.attack(work, target, hits=2)
    assert struck.amiss == []
