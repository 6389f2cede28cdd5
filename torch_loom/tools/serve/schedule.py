"""Which request runs when: continuous batching as transformers does it, and a plain loop of batches.

Both take the time of a step from a function, and know nothing of chips.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch_loom.errors import ConfigurationError
from torch_loom.tools.serve.requests import Request

# transformers 5.17, generation/continuous_batching: tokens of a block of the cache; tokens and requests of a
# batch at most; the share of blocks that must be free before a request is taken up beside others.
BLOCK_TOKENS = 256
BATCH_TOKENS = 8192
BATCH_REQUESTS = 1024
SPARE_SHARE = 0.15
# Points of a plot: more cannot be seen.
MAX_SAMPLES = 1200


class Step(NamedTuple):
    """What a step runs: tokens of prompts, how many requests decode a token, and their mean context."""

    prompt_tokens: int
    decoding: int
    context: float


StepSeconds = Callable[[Step], float]


@dataclass
class Served:
    """A request while it is served; times in seconds."""

    request: Request
    prompt_left: int
    made: int = 0
    blocks: int = 0
    started: float | None = None
    first: float = 0.0
    ended: float = 0.0

    @property
    def tokens(self) -> int:
        """How many tokens the cache holds of it."""
        return self.request.prompt_tokens + self.made - self.prompt_left


@dataclass
class Outcome:
    """What came of a trace.

    Attributes:
        served: its requests, in the order in which they arrived.
        seconds: until the last one ended.
        busy_seconds: of them, when a step ran.
        peak_tokens: of the cache in use, whole blocks.
        evictions: how often a request lost its place in the cache and began anew.
        samples: time, running and waiting requests, tokens of the cache, after some of the steps.
    """

    served: list[Served]
    seconds: float = 0.0
    busy_seconds: float = 0.0
    steps: int = 0
    peak_requests: int = 0
    peak_tokens: int = 0
    evictions: int = 0
    samples: list[tuple[float, int, int, int]] = field(default_factory=list)
    _stride: int = 1

    def note(self, now: float, running: int, waiting: int, tokens: int) -> None:
        """Note the state after a step."""
        self.steps += 1
        self.seconds = now
        self.peak_requests = max(self.peak_requests, running)
        self.peak_tokens = max(self.peak_tokens, tokens)
        if self.steps % self._stride:
            return
        self.samples.append((now, running, waiting, tokens))
        if len(self.samples) > MAX_SAMPLES:
            self.samples = self.samples[1::2]
            self._stride *= 2


def _blocks(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)


class _Continuous:
    """Requests join and leave a batch at any step; decoding goes before prompts, which are cut to fit."""

    def __init__(self, requests: Sequence[Request], seconds_of: StepSeconds, blocks: int, most: int) -> None:
        self.outcome = Outcome([Served(each, each.prompt_tokens) for each in requests])
        self.seconds_of = seconds_of
        self.blocks = self.free = blocks
        self.most = most
        self.to_come = deque(self.outcome.served)
        self.waiting: deque[Served] = deque()
        self.running: list[Served] = []

    def run(self) -> Outcome:
        now = 0.0
        while self.to_come or self.waiting or self.running:
            if not self.waiting and not self.running:
                now = max(now, self.to_come[0].request.arrival)
            while self.to_come and self.to_come[0].request.arrival <= now:
                self.waiting.append(self.to_come.popleft())
            decoding = self._decoding()
            prompts = list(self._prompts(BATCH_TOKENS - len(decoding), now))
            if not decoding and not prompts:
                # Prompts that are partly in the cache block each other.
                self._evict(self.running[-1])
                continue
            tokens = sum(count for _, count in prompts)
            context = sum(each.tokens for each in decoding) / max(1, len(decoding))
            took = self.seconds_of(Step(tokens, len(decoding), context))
            now += took
            self.outcome.busy_seconds += took
            for served, count in prompts:
                served.prompt_left -= count
            for served in [*decoding, *(each for each, _ in prompts if not each.prompt_left)]:
                self._made_one(served, now)
            held = (self.blocks - self.free) * BLOCK_TOKENS
            self.running = [each for each in self.running if not self._is_done(each)]
            self.outcome.note(now, len(self.running), len(self.waiting), held)
        return self.outcome

    def _decoding(self) -> list[Served]:
        """Return the requests that get their next token, each with a block for it; the youngest give way."""
        found = []
        for served in list(self.running):
            if served.prompt_left or served not in self.running:
                continue
            while not self._grow(served, served.tokens + 1):
                youngest = self.running[-1]
                self._evict(youngest)
                if youngest is served:
                    break
            else:
                found.append(served)
        return [each for each in found if each in self.running][:BATCH_TOKENS]

    def _prompts(self, budget: int, now: float) -> Iterator[tuple[Served, int]]:
        for served in [each for each in self.running if each.prompt_left]:
            if budget <= 0:
                return
            count = min(budget, served.prompt_left)
            if not self._grow(served, served.tokens + count):
                return
            budget -= count
            yield served, count
        while self.waiting and budget > 0 and len(self.running) < self.most:
            served = self.waiting[0]
            count = min(budget, served.prompt_left)
            spare = self.blocks * SPARE_SHARE if self.running else 0
            if self.free - _blocks(count) < spare or not self._grow(served, count):
                return
            self.waiting.popleft()
            self.running.append(served)
            if served.started is None:
                served.started = now
            budget -= count
            yield served, count

    def _grow(self, served: Served, tokens: int) -> bool:
        more = _blocks(tokens) - served.blocks
        if more > self.free:
            return False
        if more > 0:
            self.free -= more
            served.blocks += more
        return True

    def _evict(self, served: Served) -> None:
        self.running.remove(served)
        self.free += served.blocks
        served.blocks = 0
        # What it has made is part of the prompt that it begins with again.
        served.prompt_left = served.request.prompt_tokens + served.made
        self.waiting.appendleft(served)
        self.outcome.evictions += 1

    def _made_one(self, served: Served, now: float) -> None:
        if not served.made:
            served.first = now
        served.made += 1
        served.ended = now

    def _is_done(self, served: Served) -> bool:
        if served.made < served.request.new_tokens:
            return False
        self.free += served.blocks
        return True


def continuous(
    requests: Sequence[Request], seconds_of: StepSeconds, cache_tokens: int, most: int = BATCH_REQUESTS
) -> Outcome:
    """Serve requests by continuous batching, first come first served.

    Args:
        requests: in the order in which they arrive.
        seconds_of: what a step takes.
        cache_tokens: how many tokens the cache holds.
        most: requests that run at a time.

    Raises:
        ConfigurationError: a request alone is larger than the cache.
    """
    blocks = cache_tokens // BLOCK_TOKENS
    for each in requests:
        if _blocks(each.prompt_tokens + each.new_tokens) > blocks:
            raise ConfigurationError(
                f"a request of {each.prompt_tokens} and {each.new_tokens} tokens is larger than the cache. "
                f"Allowed: {blocks * BLOCK_TOKENS} tokens."
            )
    return _Continuous(requests, seconds_of, blocks, most).run()


def loop(requests: Sequence[Request], seconds_of: StepSeconds, cache_tokens: int, most: int) -> Outcome:
    """Serve requests in batches of up to ``most``, each padded to its longest and run to its end.

    What ``generate`` does: a batch begins with the requests that wait, and the next when the last has ended.

    Raises:
        ConfigurationError: a batch is larger than the cache.
    """
    outcome = Outcome([Served(each, 0) for each in requests])
    to_come = deque(outcome.served)
    now = 0.0
    while to_come:
        now = max(now, to_come[0].request.arrival)
        batch: list[Served] = []
        while to_come and len(batch) < most and to_come[0].request.arrival <= now:
            batch.append(to_come.popleft())
        prompt = max(each.request.prompt_tokens for each in batch)
        new = max(each.request.new_tokens for each in batch)
        if len(batch) * (prompt + new) > cache_tokens:
            raise ConfigurationError(
                f"a batch of {len(batch)} requests of {prompt} and {new} tokens, padded, is larger than "
                f"what the memory holds. Allowed: {cache_tokens} tokens; a smaller --max-batch is one way."
            )
        waiting = sum(each.request.arrival <= now for each in to_come)
        for made in range(new):
            step = Step(0, len(batch), prompt + made) if made else Step(prompt * len(batch), 0, 0.0)
            took = seconds_of(step)
            now += took
            outcome.busy_seconds += took
            for each in batch:
                if not made:
                    each.started, each.first = now - took, now
                if made < each.request.new_tokens:
                    each.made, each.ended = made + 1, now
            outcome.note(now, len(batch), waiting, len(batch) * (prompt + made + 1))
    return outcome
