"""Which student can learn by which method, and where methods meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from kdnas.errors import SpecError
from kdnas.taskspecific.methods.annealing_kd import AnnealingKD
from kdnas.taskspecific.methods.base import Method, NetworkShape, Setting
from kdnas.taskspecific.methods.dih import DIH
from kdnas.taskspecific.methods.pkd import PKD, direction_distance
from kdnas.taskspecific.methods.projection import Projections, projections
from kdnas.taskspecific.methods.registry import METHODS
from kdnas.taskspecific.methods.universal_kd_ca import UniversalKDCA
from kdnas.taskspecific.methods.universal_kd_cg import UniversalKDCG
from kdnas.taskspecific.methods.universal_kd_il import UniversalKDIL
from kdnas.taskspecific.methods.universal_kd_weighted import UniversalKDWeighted
from kdnas.taskspecific.methods.vanilla_kd import VanillaKD
from kdnas.taskspecific.output_space import Classes
from kdnas.taskspecific.outputs import NetworkOutputs
from kdnas.testing.method_contract import TEACHER, made_up_scene

SPACE = Classes(3)


def setting(layers: int = 3, *, transformer: bool = True, width: int = 5) -> Setting:
    return Setting(SPACE, NetworkShape(layers, width, transformer), TEACHER, 0.5)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.inner_layers])
def test_one_layer_has_no_inner_ones(name: str) -> None:
    asked = setting(1, transformer=name != "universal-kd-ca")
    with pytest.raises(SpecError, match=f"method {name} teaches the inner layers .* of 1 layer"):
        METHODS[name](asked)


@pytest.mark.parametrize(
    "name", [name for name, method in METHODS.items() if not method.inner_layers]
)
def test_one_layer_is_enough_for_methods_of_the_output(name: str) -> None:
    made = METHODS[name](setting(1))
    assert made.attending_layers() in {(), (1,)}


def test_each_kind_of_student_has_its_own_name_for_inner_layers() -> None:
    with pytest.raises(SpecError, match="with a Transformer it is universal-kd-il: take that"):
        UniversalKDCA(setting())
    with pytest.raises(SpecError, match="for this one take universal-kd-ca"):
        UniversalKDIL(setting(transformer=False))


@pytest.mark.parametrize("transformer", [True, False])
def test_both_names_are_of_one_formula(transformer: bool) -> None:
    scene = made_up_scene(UniversalKDIL, SPACE)
    losses = [
        float(
            kind(setting(transformer=own))(scene.student, scene.teacher, scene.labels, 1.0).detach()
        )
        for kind, own in ((UniversalKDIL, True), (UniversalKDCA, False))
    ]
    assert losses[0] == losses[1]


def test_nothing_is_learned_beside_where_widths_are_the_same() -> None:
    assert not list(PKD(setting(width=TEACHER.width)).parameters())
    shapes = [p.shape for p in PKD(setting(width=5)).parameters()]
    assert shapes == [(2, 5, TEACHER.width)]


@pytest.mark.parametrize(("student", "teacher"), [(5, 8), (8, 5)])
def test_maps_keep_lengths_as_far_as_widths_let_them(student: int, teacher: int) -> None:
    maps = projections(Setting(SPACE, NetworkShape(3, student), NetworkShape(4, teacher), 0.5), 2)
    assert isinstance(maps, Projections)
    for weight in maps.weight.detach():
        small = weight @ weight.T if student <= teacher else weight.T @ weight
        torch.testing.assert_close(small, torch.eye(min(student, teacher)))


def test_directions_that_are_opposite_are_four_apart() -> None:
    one = torch.tensor([[3.0, 4.0]])
    assert float(direction_distance(one, -2 * one)) == pytest.approx(4)
    assert float(direction_distance(one, 5 * one)) == pytest.approx(0, abs=1e-7)


def test_a_state_of_nothing_but_zeros_has_a_finite_gradient() -> None:
    zero = torch.zeros(1, 4, requires_grad=True)
    direction_distance(torch.ones(1, 4), zero).sum().backward()
    assert zero.grad is not None
    assert torch.isfinite(zero.grad).all()


def test_annealing_ends_at_the_teachers_own_logits() -> None:
    scene = made_up_scene(AnnealingKD, SPACE)
    made, teacher = AnnealingKD(setting()), scene.teacher
    for share in (0.25, 1.0):
        student = NetworkOutputs(share * teacher.logits)
        assert float(made(student, teacher, scene.labels, share)) == 0


def teacher_of_one_mind(scene_logits: torch.Tensor, layers: int) -> NetworkOutputs:
    return NetworkOutputs(scene_logits, scene_logits[:, None].expand(-1, layers, -1))


@pytest.mark.parametrize("kind", [DIH, UniversalKDCG, UniversalKDWeighted])
def test_layers_of_one_mind_teach_as_the_teacher_itself(kind: Callable[[Setting], Method]) -> None:
    """However they are weighted: at a temperature of 1 all of these are then vanilla-kd."""
    scene = made_up_scene(VanillaKD, SPACE)
    teacher = teacher_of_one_mind(scene.teacher.logits, TEACHER.layers)
    wanted = VanillaKD(setting())(scene.student, teacher, scene.labels, 1.0)
    found = kind(setting())(scene.student, teacher, scene.labels, 1.0)
    torch.testing.assert_close(found, wanted)


def test_beta_weighs_the_output_against_a_methods_own_loss() -> None:
    scene = made_up_scene(UniversalKDIL, SPACE)
    losses = [
        float(
            UniversalKDIL(replace(setting(), beta=beta))(
                scene.student, scene.teacher, scene.labels, 1.0
            ).detach()
        )
        for beta in (0.0, 0.25, 1.0)
    ]
    assert losses[1] == pytest.approx(0.75 * losses[0] + 0.25 * losses[2])
    output = VanillaKD(setting())(scene.student, scene.teacher, scene.labels, 1.0)
    assert losses[2] == pytest.approx(float(output.detach()))


def test_attention_prefers_layers_that_agree() -> None:
    """Of answers that lie between 0 and 1, no weight is more than e times another."""
    said = torch.tensor([[[9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0, 9.0]]])
    student = NetworkOutputs(torch.tensor([[0.0, 9.0, 0.0]]))
    weights = UniversalKDCG(setting()).attention(student, NetworkOutputs(said[:, 0], said))
    assert weights.argmax(-1).tolist() == [[1]]
    assert float(weights.max() / weights.min()) == pytest.approx(2.718, abs=0.01)
