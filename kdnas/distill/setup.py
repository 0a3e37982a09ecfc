"""What trainings share: the loaded teacher, and students that start from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from kdnas.architecture import Architecture
from kdnas.corpus.batches import PaddedBatch
from kdnas.corpus.masking import TokenMasking
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.calibration import (
    calibration_problem,
    calibration_states,
    refuse_broken_teacher,
    training_tokens,
)
from kdnas.distill.numerics import Device, derived_seed
from kdnas.distill.parallel import ALONE, Parallel
from kdnas.distill.sentence_map import SentenceMaps
from kdnas.distill.stages import StagePlan
from kdnas.distill.student_trainer import StudentTrainer
from kdnas.distill.teacher_pass import TeacherPass
from kdnas.models.attention import use_training_attention
from kdnas.models.batch import Batch, Totals
from kdnas.models.families import family_of
from kdnas.models.lm_head import MaskedLMHead, load_teacher_lm_head, tied_lm_head
from kdnas.models.pooling import teaching_pooling
from kdnas.models.start.copied import copy_layers
from kdnas.models.start.states import TeacherStates
from kdnas.models.start.teacher_start import start_from_teacher
from kdnas.models.start.warm import EmbeddingBasis, start_warm
from kdnas.models.student import build_student, load_weights
from kdnas.models.taps import TapPoints, TokenStates, read_token_states
from kdnas.models.teacher import TeacherHandle, load_teacher_model, mask_token
from kdnas.objectives.base import Head
from kdnas.specs.parts import StudentSpec, TrainingSpec
from kdnas.store import Store

_CALIBRATION = 8  # tells this hiding of tokens from others (a training of seed 8 hides alike)


@dataclass(frozen=True)
class CalibrationText:
    """Where a start finds text to watch the teacher on, and where it keeps what it saw.

    Attributes:
        corpus: the text.
        store: for the teacher's states.
    """

    corpus: TokenizedCorpus
    store: Store


class Setup:
    """A teacher in memory, and how its students start and are trained.

    Args:
        teacher: the teacher.
        text: what starts are fitted on; None where no student is made.
        device: where everything runs.
        dtype: format of training's forward passes.
        start: how students start.
        origin: the model whose weights students begin with, if there is one.
    """

    def __init__(
        self,
        teacher: TeacherHandle,
        text: CalibrationText | None,
        device: Device,
        dtype: str,
        start: StudentSpec,
        origin: TeacherHandle | None = None,
    ) -> None:
        self.teacher, self.device, self.dtype = teacher, device, dtype
        self.family = family_of(teacher.shape.model_type)
        self.model = load_teacher_model(teacher).to(device)
        self._text, self._start, self._origin = text, start, origin
        self._looked_at_teacher = False
        self._plain_states: dict[TapPoints, TokenStates] = {}
        self._masked_states: dict[TapPoints, TokenStates] = {}
        # What a student makes of the calibration text, from its start until something is fitted.
        self._seen: WeakKeyDictionary[nn.Module, TokenStates] = WeakKeyDictionary()

    @cached_property
    def _basis(self) -> EmbeddingBasis:
        return EmbeddingBasis.of(self.model, self.family)

    @cached_property
    def states(self) -> TeacherStates:
        """The teacher's states on the calibration text, from the store or collected now."""
        if self._text is None:
            raise ValueError("a start that is fitted to text needs some")
        return calibration_states(
            self.teacher,
            self.model,
            self._text.corpus,
            self._start.calibration_tokens,
            self._text.store,
            self.device,
        )

    @cached_property
    def has_enough_text(self) -> bool:
        """Whether there is text enough to fit anything to the teacher's states on it."""
        if self._text is None:
            return False
        available, asked = training_tokens(self._text.corpus), self._start.calibration_tokens
        return calibration_problem(self.teacher.shape, available, asked) is None

    @cached_property
    def _lm_head(self) -> MaskedLMHead:
        return load_teacher_lm_head(self.teacher)

    @cached_property
    def _earlier_lm_head(self) -> MaskedLMHead | None:
        """Of the model whose weights students begin with."""
        return tied_lm_head(self._origin) if self._origin is not None else None

    @cached_property
    def masking(self) -> TokenMasking:
        """How tokens are hidden where an objective wants it."""
        mask_id, special_ids = mask_token(self.teacher)
        return TokenMasking(mask_id, special_ids, self.teacher.shape.vocab_size)

    def student(
        self,
        architecture: Architecture,
        plan: StagePlan,
        spec: TrainingSpec,
        *,
        started: bool = True,
    ) -> nn.Module:
        """Build a student and give it its start, unless its weights are still to be loaded."""
        student = build_student(
            self.teacher.config, architecture, seed=spec.seed, dropout=spec.dropout
        )
        use_training_attention(student)
        if not started:
            return student
        if self._origin is not None:
            load_weights(student, self._origin)
            return student
        init = "copy" if plan.objective.copies_layers else self._start.init
        match init:
            case "teacher":
                seen = start_from_teacher(
                    student,
                    self.model,
                    self.family,
                    architecture,
                    self.states,
                    spec.seed,
                    plan.objective.compared(self.teacher.shape),
                )
                self._seen[student] = TokenStates(
                    dict(enumerate(seen)), {}, self.family.word_embeddings(student)
                )
            case "warm":
                start_warm(student, self.model, self.family, self._basis)
            case "copy":
                copy_layers(student, self.model, self.family)
            case "random":
                pass  # as it was built
        return student

    def fit(self, trainer: StudentTrainer) -> None:
        """Fit what the objective learns beside the student to where the student starts.

        A random start is left as random as its paper has it, unless the student was trained
        before. So is what would be fitted to less text than a start takes: of a few tokens least
        squares learns the tokens by heart, and the held-out loss is worse than that of random
        projections.

        Raises:
            TeacherError: the teacher's states on the text are not finite, or constant; looked at
                even where nothing is fitted, for training would tell neither from a bad student.
        """
        head, plan, seen = trainer.head, trainer.plan, self._seen.pop(trainer.student, None)
        if not self.has_enough_text:
            self.look_at_teacher()
            return
        _ = self.states  # refuses a broken teacher, also where nothing is fitted
        left_random = self._start.init == "random" and self._origin is None
        if left_random or type(head).fit is Head.fit:
            return
        if head.student_lm_head is not None:
            if self._earlier_lm_head is not None and not plan.first_step:
                return  # it has learned already
            own = trainer.token_states(head.student_taps, self._masked_text)
            theirs = self._on_masked_text(head.teacher_taps)
        else:
            if seen is None or head.student_taps.projections:
                seen = trainer.token_states(head.student_taps, self._calibration_batches())
            own = seen
            theirs = self._on_text(head.teacher_taps)
        head.fit(own, theirs)

    def look_at_teacher(self) -> None:
        """Refuse a broken teacher where there is too little text for its states to be kept."""
        if self._text is None or self._looked_at_teacher:
            return
        tokens = self._start.calibration_tokens
        refuse_broken_teacher(self.teacher, self.model, self._text.corpus, tokens, self.device)
        self._looked_at_teacher = True

    @cached_property
    def _sentence_maps(self) -> SentenceMaps | None:
        pooling = teaching_pooling(self.teacher)
        if self._text is None or pooling is None or not self.has_enough_text:
            return None
        corpus, store = self._text.corpus, self._text.store
        return SentenceMaps(self.teacher, pooling, self.model, corpus, store, self.device)

    def sentence_projection(self, trainer: StudentTrainer) -> Tensor | None:
        """The linear map that brings a student's sentence embeddings closest to the teacher's.

        Sentence embeddings are read through it, whatever the student learned.

        Returns:
            (d, E) in float32 on the CPU; None where the teacher embeds no sentences, or in a way
            that no linear map commutes with, or where there is too little text.
        """
        if self._sentence_maps is None:
            return None
        last = len(self.family.transformer_layers(trainer.student))
        points = TapPoints(hidden=frozenset({last}))
        own = trainer.token_states(points, self._calibration_batches()).hidden[last]
        theirs = self.states.output(self.teacher.shape.layers).to(own)
        with trainer.evaluating() as student:
            return self._sentence_maps.fit(student, own, theirs)

    def _calibration_batches(self) -> Iterator[Batch]:
        return self.states.batches(self.teacher.config.pad_token_id or 0, self.device)

    @cached_property
    def _masked_text(self) -> list[Batch]:
        """The calibration text with tokens hidden, always the same ones."""
        found = []
        for number, batch in enumerate(self._calibration_batches()):
            padded = PaddedBatch(batch.input_ids.cpu().numpy(), batch.attention_mask.cpu().numpy())
            hidden = self.masking(padded, _CALIBRATION, number)
            found.append(Batch.of(hidden.input_ids, hidden.attention_mask, device=self.device))
        return found

    def _on_text(self, points: TapPoints) -> TokenStates:
        """What the teacher makes of the calibration text, the same for all students."""
        if points not in self._plain_states:
            self._plain_states[points] = self.states.token_states(self.model, self.family, points)
        return self._plain_states[points]

    def _on_masked_text(self, points: TapPoints) -> TokenStates:
        """What the teacher makes of it, read once."""
        if points not in self._masked_states:
            self._masked_states[points] = read_token_states(
                self.model, self.family, points, self._masked_text
            )
        return self._masked_states[points]

    def trainer(
        self,
        student: nn.Module,
        architecture: Architecture,
        plan: StagePlan,
        spec: TrainingSpec,
        parallel: Parallel = ALONE,
        compile_student: bool = False,
    ) -> StudentTrainer:
        """Make the trainer of a student's stage."""
        objective, seed = plan.objective, spec.seed
        head = objective.head(
            architecture,
            self.teacher.shape,
            derived_seed("head", seed, architecture),
            self._lm_head if objective.needs_lm_head else None,
        )
        own = head.student_lm_head
        if own is not None and self._earlier_lm_head is not None and not plan.first_step:
            own.load_state_dict(self._earlier_lm_head.state_dict())
        return StudentTrainer(
            student,
            self.family,
            head,
            spec,
            plan,
            self.device,
            self.dtype,
            derived_seed("dropout", seed, architecture),
            parallel,
            compile_student,
        )

    def teacher_pass(self, trainers: Iterable[StudentTrainer]) -> TeacherPass:
        """Tap the teacher for all that these students learn from."""
        points = TapPoints.union(trainer.head.teacher_taps for trainer in trainers)
        return TeacherPass(self.model, self.family, points, self.device, self.dtype)

    def hide(self, padded: PaddedBatch, plan: StagePlan, *seed: int) -> PaddedBatch:
        """Hide tokens of a batch if the stage's objective wants it."""
        return self.masking(padded, *seed) if plan.objective.masks_tokens else padded

    def parts(
        self, padded: PaddedBatch, parallel: Parallel = ALONE, accumulate: int = 1
    ) -> list[Batch]:
        """Cut this worker's share of a step's batch into parts, and move them to the device.

        Workers take every n-th sequence: batches are sorted by length, so their shares are equally
        long. A worker whose share is empty (an epoch's last short batch) gets a sequence that does
        not count, since all workers have to exchange gradients.
        """
        totals = Totals.of(padded.attention_mask, padded.labels)
        share = padded.rows(slice(parallel.rank, None, parallel.world_size))
        counts = len(share.input_ids) > 0
        if not counts:
            share = padded.rows(slice(0, 1))
        size = -(-len(share.input_ids) // accumulate)
        return [
            self.batch(share.rows(slice(i, i + size)), totals, counts)
            for i in range(0, len(share.input_ids), size)
        ]

    def batch(
        self, padded: PaddedBatch, totals: Totals | None = None, counts: bool = True
    ) -> Batch:
        """Move a padded batch to the device."""
        return Batch.of(
            padded.input_ids,
            padded.attention_mask,
            padded.labels,
            device=self.device,
            totals=totals,
            counts=counts,
        )
