"""The speed of brokers, checker and simulated world on this machine: the rows of docs/speed.md.

    bench broker     loads of our own brokers, and the time from the end of a storm to its verdict
    bench check      the checker on generated histories, whose injected anomalies it must find
    bench sim        virtual time, events and schedules per second of processor time

`bench` alone is `bench broker`."""

from __future__ import annotations

import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the experiment."""
    parser.add_argument("what", nargs="?", choices=("broker", "check", "sim"), default="broker")
    broker = parser.add_argument_group("broker")
    broker.add_argument("--batch", type=int, default=1, help="records per batch")
    broker.add_argument("--record-bytes", type=int, default=100)
    broker.add_argument("--judged", type=float, default=0.0, help="seconds of a storm to judge")
    check = parser.add_argument_group("check")
    check.add_argument("--ops", type=int, action="append", help="of a history; repeatable")
    check.add_argument("--hot", type=float, action="append", help="the first key's share of sends")
    check.add_argument("--lines", action="store_true", help="judge lines too: ours, and Jepsen's")
    check.add_argument("--group", action="store_true", help="let a group of consumers read")
    check.add_argument("--no-spark", action="store_true")
    both = parser.add_argument_group("broker and sim")
    both.add_argument("--budget", type=float, default=4.0, help="seconds of each measurement")


def run(given: argparse.Namespace) -> int:
    """Measure and print. Return 1 if the checker missed or invented an anomaly."""
    if given.what == "check":
        from tests.lab.bench.check import print_checked, run_check_bench

        checked = run_check_bench(
            given.ops or [10_000_000],
            given.hot or [0.0],
            lines=given.lines,
            spark=not given.no_spark,
            group=given.group,
        )
        print_checked(checked)
        return int(any(each.missed or each.invented for each in checked))
    if given.what == "sim":
        from tests.lab.bench.simulator import print_speeds, run_sim_bench

        print_speeds(run_sim_bench(given.budget))
        return 0
    from tests.lab.bench.broker import Load, judge_a_run, print_loads, run_loads

    load = Load(given.batch, given.record_bytes, given.budget)
    print_loads(load, run_loads(load))
    if given.judged:
        print(judge_a_run(given.judged))
    return 0
