"""The table of `floodmark bench check`."""

from __future__ import annotations

from harness.bench.check import Checked, check_table


def checked(asked: int, hot: float, rate: float, cpu_s: float) -> Checked:
    return Checked(
        asked=asked,
        ops=asked - int(10 * hot),
        records_read=5 * asked,
        keys=20,
        hot=hot,
        make_s=1.0,
        seconds=asked / rate,
        ops_s=rate,
        cpu_s=cpu_s,
        floor_s=1.0,
        peak_bytes=1 << 30,
        verdict="invalid",
        injected=16,
        missed=(),
        invented=(),
    )


def test_a_hot_history_is_compared_with_the_spread_one_of_its_size() -> None:
    found = [
        checked(1_000, 0, 200, 4),
        checked(1_000, 0.9, 100, 5),
        checked(1_000, 0, 100, 4),
        checked(1_000, 0.9, 140, 5),
        checked(1_000, 0, 160, 4),
        checked(1_000, 0.9, 120, 5),
        checked(9_000, 0.5, 1, 1),
    ]
    *rows, last = check_table(found).splitlines()
    assert len(rows) == 1 + len(found)
    assert last == (
        "1,000 operations, 90% of the sends to one partition: 75% of the speed of the spread "
        "history, 1.25 times its processor seconds (medians)"
    )
