"""Run the steps of a script: conditions, values of earlier results, and what happens after a failure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coretools.errors import CoreError, InvalidArguments
from coretools.pipelines.expressions import Expressions
from coretools.pipelines.outcome import Outcome, Step, error_document, result_document
from coretools.pipelines.runner import Observer, StepRunner
from coretools.pipelines.script import LoadedScript, ScriptStep
from coretools.pipelines.templates import filled, filled_expression


@dataclass(frozen=True, slots=True)
class Retries:
    """Repetitions that the command line asks for; a step may ask for more."""

    count: int = 0
    is_any: bool = False


class ScriptRunner:
    """Runs one script."""

    def __init__(self, loaded: LoadedScript, runner: StepRunner, expressions: Expressions, observer: Observer) -> None:
        self._loaded = loaded
        self._runner = runner
        self._expressions = expressions
        self._observer = observer
        self.outcomes: list[Outcome] = []
        """Of the steps so far."""

    async def run(self, variables: Mapping[str, Any], environment: Mapping[str, str], retries: Retries) -> None:
        """Run all steps; what fails is in the outcomes."""
        names = self._loaded.environment_names()
        known = {"vars": dict(variables), "env": {name: environment[name] for name in names if name in environment}}
        await self._expressions.put((), {"steps": {}} | known)
        for index, given in enumerate(self._loaded.script.steps):
            outcome = await self._outcome(index, given, retries)
            self.outcomes.append(outcome)
            await self._expressions.put(("steps", outcome.step.id), _document(outcome))

    async def _outcome(self, index: int, given: ScriptStep, retries: Retries) -> Outcome:
        step = self._step(index, given, retries)
        has_failed = any(earlier.is_failure for earlier in self.outcomes)
        reason = ""
        if given.when != "always" and has_failed is (given.when == "success"):
            reason = "an earlier step failed" if has_failed else "no earlier step failed"
        try:
            if not reason and not await self._is_wanted(given.condition):
                reason = f"{given.condition} does not hold"
            if not reason:
                return await self._runner.run(await self._prepared(step, given))
            outcome = Outcome(step=step, status="skipped", reason=reason)
        except CoreError as error:
            outcome = Outcome(step=step, status="failed", error=error)
        await self._observer.on_end(outcome)
        return outcome

    async def _is_wanted(self, condition: str | bool) -> bool:
        if isinstance(condition, bool):
            return condition
        return (await self._expressions.check(await filled_expression(condition, self._expressions))).holds

    def _step(self, index: int, given: ScriptStep, retries: Retries) -> Step:
        script = self._loaded.script
        is_any = script.retry_any if given.retry_any is None else given.retry_any
        return Step(
            id=self._loaded.step_id(index),
            name=given.name,
            server=given.server,
            tool=given.tool,
            seconds=given.timeout or script.timeout,
            retries=max(retries.count, script.retry if given.retry is None else given.retry),
            retries_any=is_any or retries.is_any,
            expects_error=given.expect == "error",
            is_optional=given.continue_on_error,
            file=self._loaded.file,
            line=self._loaded.line_of(index),
        )

    async def _prepared(self, step: Step, given: ScriptStep) -> Step:
        """Return the step with its templates replaced."""
        arguments = await filled(given.arguments, self._expressions)
        assertions = [await filled_expression(text, self._expressions) for text in given.expressions]
        return replace(step, arguments=arguments, assertions=assertions)


def variables_of(loaded: LoadedScript, words: Sequence[str]) -> dict[str, Any]:
    """Return the variables of a script with those that the line sets.

    Raises:
        InvalidArguments: a word is not `NAME=VALUE` with a variable that the script declares, or one has no value.
    """
    declared = loaded.script.vars
    given: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in declared:
            known = ", ".join(declared) or "none"
            raise InvalidArguments(f"--var {word[:80]}: write NAME=VALUE; {loaded.file} declares {known}")
        given[name] = value
    variables = dict(declared) | given
    if missing := [name for name, value in variables.items() if value is None]:
        raise InvalidArguments(f"{loaded.file}: {missing[0]} has no value; give --var {missing[0]}=VALUE")
    return variables


def _document(outcome: Outcome) -> dict[str, Any]:
    """Return what later steps see of a step."""
    return {
        "outcome": outcome.status,
        "result": None if outcome.result is None else result_document(outcome.result),
        "error": None if outcome.error is None else error_document(outcome.error),
    }
