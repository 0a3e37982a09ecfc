"""What every method of distillation for a task must do, as a suite of tests to inherit from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from kdnas.taskspecific.methods.base import Method, NetworkShape, Setting
from kdnas.taskspecific.output_space import Classes, Numbers, OutputSpace
from kdnas.taskspecific.outputs import NetworkOutputs
from kdnas.testing.method_reference import (
    REFERENCES,
    Array,
    Case,
    reference_gradient,
    reference_loss,
)

NUM_EXAMPLES = 4
STUDENT, TEACHER = NetworkShape(3, 5), NetworkShape(5, 6)
SKIPPED = (1, 3)
"""Which layers ``skip`` matches for these two: ⌊5/3⌋ and ⌊10/3⌋."""
BETA, TEMPERATURE, SHARE = 0.2, 2.5, 0.6
SPACES: dict[str, OutputSpace] = {
    "two classes": Classes(2),
    "three classes": Classes(3),
    "a number": Numbers(1.5, centre=0.8),
}
LEARN_FROM_LABELS = {"none", "mhkd"}
"""Methods whose first stage looks at the labels too, so that imitation alone is not perfect."""
DRAWN = settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass
class Scene:
    """A made-up batch: what student and teacher say of it, and its labels.

    Attributes:
        student: leaves that gradients are asked of.
        teacher: without gradient.
        labels: (B,).
    """

    student: NetworkOutputs
    teacher: NetworkOutputs
    labels: Tensor

    def rows(self, places: list[int]) -> Scene:
        """The same with these examples, in this order."""

        def of(outputs: NetworkOutputs) -> NetworkOutputs:
            kept = (outputs.logits, outputs.layers, outputs.states)
            logits, layers, states = (None if t is None else t.detach()[places] for t in kept)
            assert logits is not None
            return NetworkOutputs(logits, layers, states)

        return Scene(of(self.student), of(self.teacher), self.labels[places])

    def leaves(self) -> dict[str, Tensor]:
        """What of the student's outputs there is, by name."""
        named = {name: getattr(self.student, name) for name in ("logits", "layers", "states")}
        return {name: tensor for name, tensor in named.items() if tensor is not None}


def made_up_scene(
    method: type[Method],
    space: OutputSpace,
    student: NetworkShape = STUDENT,
    teacher: NetworkShape = TEACHER,
    examples: int = NUM_EXAMPLES,
    seed: int = 0,
) -> Scene:
    """A batch drawn at random, with those outputs alone that a method says it needs."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int, wanted: bool = True, learned: bool = False) -> Tensor | None:
        values = torch.randn(*shape, generator=generator) * 1.5
        return values.requires_grad_(learned) if wanted else None

    def outputs(shape: NetworkShape, layers: bool, states: bool, learned: bool) -> NetworkOutputs:
        logits = draw(examples, space.size, learned=learned)
        assert logits is not None
        said = draw(examples, shape.layers, space.size, wanted=layers, learned=learned)
        vectors = draw(examples, shape.layers, shape.width, wanted=states, learned=learned)
        return NetworkOutputs(logits, said, vectors)

    if isinstance(space, Numbers):
        labels = torch.randn(examples, generator=generator) * space.deviation
    else:
        labels = torch.randint(space.size, (examples,), generator=generator)
    needs = method
    return Scene(
        outputs(student, needs.needs_student_layers, needs.needs_teacher_states, True),
        outputs(teacher, needs.needs_teacher_layers, needs.needs_teacher_states, False),
        labels,
    )


def imitation(scene: Scene, method: type[Method], space: OutputSpace, certain: bool) -> Scene:
    """A student that says what its teacher says, whose layers all say the same.

    Args:
        scene: whose labels are taken, and states of both of the same width.
        method: says what is needed.
        space: of the outputs.
        certain: whether what is said is the label.
    """
    if certain and isinstance(space, Numbers):
        logits = scene.labels[:, None]
    elif certain:
        logits = 100.0 * torch.nn.functional.one_hot(scene.labels, space.size).float()
    else:
        logits = scene.teacher.logits
    state = torch.randn(len(logits), 1, TEACHER.width, generator=torch.Generator().manual_seed(3))

    def outputs(count: int, layers: bool, states: bool) -> NetworkOutputs:
        return NetworkOutputs(
            logits,
            logits[:, None].expand(-1, count, -1) if layers else None,
            state.expand(-1, count, -1) if states else None,
        )

    return Scene(
        outputs(STUDENT.layers, method.needs_student_layers, method.needs_teacher_states),
        outputs(TEACHER.layers, method.needs_teacher_layers, method.needs_teacher_states),
        scene.labels,
    )


class MethodContract:
    """Inherit in a test class and give :meth:`method`; each space of outputs is gone through."""

    @pytest.fixture
    def method(self) -> type[Method]:
        """The method."""
        raise NotImplementedError

    @pytest.fixture(params=SPACES, ids=lambda name: name.replace(" ", "-"))
    def space(self, request: pytest.FixtureRequest) -> OutputSpace:
        """Two classes, three, or a number."""
        return SPACES[request.param]

    def setting(
        self, method: type[Method], space: OutputSpace, same_width: bool = False, seed: int = 0
    ) -> Setting:
        """What a method is made for: a student of the kind that it is for."""
        transformer = method.name != "universal-kd-ca"
        width = TEACHER.width if same_width else STUDENT.width
        student = replace(STUDENT, width=width, transformer=transformer)
        return Setting(space, student, TEACHER, BETA, TEMPERATURE, seed=seed)

    def made(self, method: type[Method], space: OutputSpace, seed: int = 0) -> Method:
        """The method between networks of two widths."""
        return method(self.setting(method, space, seed=seed))

    def loss(self, made: Method, scene: Scene) -> Tensor:
        """Loss of a batch."""
        teacher = scene.teacher if made.needs_teacher else None
        loss: Tensor = made(scene.student, teacher, scene.labels, SHARE)
        return loss

    def case(self, made: Method, scene: Scene) -> Case:
        """The same as plain numbers; what was not asked for is 0."""

        def numbers(tensor: Tensor | None, *shape: int) -> Array:
            if tensor is None:
                return np.zeros(shape)
            values: Array = tensor.detach().double().numpy()
            return values

        b, k = scene.student.logits.shape
        n, m = TEACHER.layers, STUDENT.layers
        maps = [parameter for _, parameter in made.named_parameters()]
        return Case(
            logits=numbers(scene.student.logits),
            layers=numbers(scene.student.layers, b, m, k),
            states=numbers(scene.student.states, b, m, STUDENT.width),
            teacher_logits=numbers(scene.teacher.logits),
            teacher_layers=numbers(scene.teacher.layers, b, n, k),
            teacher_states=numbers(scene.teacher.states, b, n, TEACHER.width),
            labels=numbers(scene.labels),
            share=SHARE,
            beta=BETA,
            temperature=TEMPERATURE,
            deviation=made.space.deviation if isinstance(made.space, Numbers) else None,
            centre=made.space.centre if isinstance(made.space, Numbers) else 0.0,
            matched=SKIPPED,
            chosen=tuple(range(1, n + 1)),
            maps=numbers(maps[0]) if maps else None,
        )

    def test_it_has_a_name_and_a_reference(self, method: type[Method]) -> None:
        """A new method's formula goes into ``kdnas.testing.method_reference`` as well."""
        assert method.name in REFERENCES

    def test_the_loss_is_a_finite_float32_number(
        self, method: type[Method], space: OutputSpace
    ) -> None:
        """From those outputs alone that the method says it needs."""
        loss = self.loss(self.made(method, space), made_up_scene(method, space))
        assert (loss.shape, loss.dtype) == ((), torch.float32)
        assert torch.isfinite(loss)

    def test_loss_and_gradients_equal_a_float64_reference(
        self, method: type[Method], space: OutputSpace
    ) -> None:
        """By all that the student says, and by what is learned beside it."""
        made, scene = self.made(method, space), made_up_scene(method, space)
        case, loss = self.case(made, scene), self.loss(made, scene)
        assert float(loss.detach()) == pytest.approx(reference_loss(method.name, case), rel=1e-5)
        loss.backward()  # type: ignore[no-untyped-call]
        found = {name: tensor.grad for name, tensor in scene.leaves().items()}
        beside = [("maps", parameter.grad) for parameter in made.parameters()]
        for name, gradient in [*found.items(), *beside]:
            wanted = reference_gradient(method.name, case, name)
            if gradient is None:
                assert not wanted.any(), name
            else:
                np.testing.assert_allclose(gradient.numpy(), wanted, rtol=1e-4, atol=1e-6)

    def test_it_is_a_mean_over_examples(self, method: type[Method], space: OutputSpace) -> None:
        """A batch twice over has the same loss, and one of parts the mean of theirs."""
        made, scene = self.made(method, space), made_up_scene(method, space)
        whole = float(self.loss(made, scene).detach())
        every = list(range(NUM_EXAMPLES))
        twice = float(self.loss(made, scene.rows(every * 2)).detach())
        each = [float(self.loss(made, scene.rows([b])).detach()) for b in every]
        assert twice == pytest.approx(whole, rel=1e-6)
        assert np.mean(each) == pytest.approx(whole, rel=1e-6)

    @DRAWN
    @given(order=st.permutations(range(NUM_EXAMPLES)), seed=st.integers(0, 1000))
    def test_the_order_of_examples_does_not_count(
        self, method: type[Method], space: OutputSpace, order: list[int], seed: int
    ) -> None:
        """Nor does one example say anything about another."""
        made, scene = self.made(method, space), made_up_scene(method, space, seed=seed)
        there = float(self.loss(made, scene).detach())
        assert float(self.loss(made, scene.rows(order)).detach()) == pytest.approx(there, rel=1e-5)

    @DRAWN
    @given(shift=st.floats(-20, 20), seed=st.integers(0, 1000))
    def test_a_constant_on_the_logits_of_all_classes_does_not_count(
        self, method: type[Method], space: OutputSpace, shift: float, seed: int
    ) -> None:
        """Answers are distributions; ``annealing-kd`` alone looks at logits, as numbers do."""
        if method.name == "annealing-kd" or isinstance(space, Numbers):
            return
        made, scene = self.made(method, space), made_up_scene(method, space, seed=seed)

        def shifted(outputs: NetworkOutputs, by: float) -> NetworkOutputs:
            layers = None if outputs.layers is None else outputs.layers + by
            return NetworkOutputs(outputs.logits + by, layers, outputs.states)

        moved = replace(
            scene, student=shifted(scene.student, shift), teacher=shifted(scene.teacher, -shift)
        )
        there = float(self.loss(made, scene).detach())
        assert float(self.loss(made, moved).detach()) == pytest.approx(there, rel=1e-3, abs=1e-5)

    def test_perfect_imitation_gives_zero(self, method: type[Method], space: OutputSpace) -> None:
        """KL(p ‖ p) = 0; where labels count too, only if what is imitated is right and certain."""
        made = method(self.setting(method, space, same_width=True))
        scene = made_up_scene(method, space)
        for certain in (False, True):
            if not certain and method.name in LEARN_FROM_LABELS:
                continue
            same = imitation(scene, method, space, certain)
            teacher = same.teacher if made.needs_teacher else None
            loss = float(made(same.student, teacher, same.labels, 1.0).detach())
            assert loss == pytest.approx(0.0, abs=1e-5)

    def test_it_is_never_negative(self, method: type[Method], space: OutputSpace) -> None:
        """Divergences, cross entropies and squares are not."""
        made = self.made(method, space)
        for seed in range(5):
            scene = made_up_scene(method, space, seed=seed)
            assert float(self.loss(made, scene).detach()) > 0

    def test_no_gradient_reaches_the_teacher(
        self, method: type[Method], space: OutputSpace
    ) -> None:
        """And it is not lost on the way to the student."""
        made, scene = self.made(method, space), made_up_scene(method, space)
        self.loss(made, scene).backward()  # type: ignore[no-untyped-call]
        teaching = (scene.teacher.logits, scene.teacher.layers, scene.teacher.states)
        assert all(t is None or (t.grad is None and not t.requires_grad) for t in teaching)
        learning = [t.grad for t in scene.leaves().values()]
        assert any(grad is not None and grad.abs().sum() > 0 for grad in learning)
        assert all(p.grad is not None for p in made.parameters())

    def test_what_was_rounded_to_bfloat16_has_a_loss_in_float32(
        self, method: type[Method], space: OutputSpace
    ) -> None:
        """A student's outputs are of its forward pass, the loss is not."""
        made, scene = self.made(method, space), made_up_scene(method, space)
        exact = float(self.loss(made, scene).detach())
        rounded = {name: tensor.detach().bfloat16() for name, tensor in scene.leaves().items()}
        loss = self.loss(made, replace(scene, student=NetworkOutputs(**rounded)))
        assert loss.dtype == torch.float32
        assert float(loss.detach()) == pytest.approx(exact, rel=0.05, abs=0.05)

    def test_attention_is_a_distribution_over_the_teachers_layers(
        self, method: type[Method], space: OutputSpace
    ) -> None:
        """For every student layer that attends; a method without attention says so."""
        made, scene = self.made(method, space), made_up_scene(method, space)
        attending = made.attending_layers()
        weights = made.attention(scene.student, scene.teacher)
        assert (weights is None) == (not attending)
        if weights is None:
            return
        assert weights.shape == (NUM_EXAMPLES, len(attending), TEACHER.layers)
        assert all(1 <= layer <= STUDENT.layers for layer in attending)
        assert weights.dtype == torch.float32
        assert (weights >= 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))

    def test_the_seed_decides_what_is_learned_beside(
        self, method: type[Method], space: OutputSpace
    ) -> None:
        """And the process's own random state stays as it was."""
        state = torch.get_rng_state()
        one, same, other = (self.made(method, space, seed) for seed in (1, 1, 2))
        assert torch.equal(torch.get_rng_state(), state)
        drawn = zip(one.parameters(), same.parameters(), other.parameters(), strict=True)
        for a, b, c in drawn:
            assert torch.equal(a, b)
            assert not torch.equal(a, c)
