"""Scale and shift of a normalized row: functions that `norm_kernel` inlines, for each dtype."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

from ...runtime.jit.range_kernel import inlined
from ...runtime.simd.element import ELEMENTS, Element
from ...runtime.simd.memory import load_f32, load_masked, store_f32, store_masked
from ...runtime.simd.vector import LANES


@inlined
def _scaled_f32(place: Any, target: Any, base: Any, begin: Any, end: Any, factor: Any, added: Any) -> None:
    """Scale and shift elements, which results may overwrite."""
    source, result, stop = place + 4 * begin, target + 4 * (base + begin), place + 4 * end
    while source + 4 * LANES <= stop:
        store_f32(result, load_f32(source) * factor + added)
        source, result = source + 4 * LANES, result + 4 * LANES
    if source < stop:
        lanes = (1 << ((stop - source) // 4)) - 1
        store_masked(result, load_masked(source, lanes) * factor + added, lanes)


def scaled_elements(kind: Element) -> Any:
    """Scales and shifts a row whose elements have a scale each."""
    pointer, numbers, written = kind.pointer, kind.compute_pointer, kind.narrow

    @inlined
    def scaled(
        place: Any, target: Any, base: Any, count: Any, entries: Any, begin: Any,
        scales: Any, shifts: Any, mean: Any, inverse: Any,
    ) -> None:  # fmt: skip
        line, y, scale, shift = numbers(place), pointer(target), numbers(scales), numbers(shifts)
        if shifts != 0:
            for j in range(count):
                y[base + j] = written((line[j] - mean) * inverse * scale[begin + j] + shift[begin + j])
        else:
            for j in range(count):
                y[base + j] = written((line[j] - mean) * inverse * scale[begin + j])

    return scaled


def scaled_groups(kind: Element) -> Any:
    """As `scaled_elements`, of rows with a scale for several elements that follow each other."""
    pointer, numbers, written = kind.pointer, kind.compute_pointer, kind.narrow

    @inlined
    def by_element(place: Any, target: Any, base: Any, first: Any, end: Any, factor: Any, added: Any) -> None:
        line, y = numbers(place), pointer(target)
        for j in range(first, end):
            y[base + j] = written(line[j] * factor + added)

    scaled_group = _scaled_f32 if kind is ELEMENTS["float32"] else by_element

    @inlined
    def scaled(
        place: Any, target: Any, base: Any, count: Any, entries: Any, begin: Any,
        scales: Any, shifts: Any, mean: Any, inverse: Any,
    ) -> None:  # fmt: skip
        scale, shift = numbers(scales), numbers(shifts)
        length = count // entries
        for entry in range(entries):
            factor = inverse * scale[begin + entry]
            added = shift[begin + entry] - mean * factor if shifts != 0 else -mean * factor
            scaled_group(place, target, base, entry * length, entry * length + length, factor, added)

    return scaled
