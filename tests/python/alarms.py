#!/usr/bin/env python3
"""Evaluates every alarm of stack/alarms.yaml by CloudWatch's rules, on series where it must fire and on series where it must not.

The rules are in "Alarm evaluation" and "Configuring how CloudWatch alarms treat missing data" of CloudWatch's user guide:

- The window is the last EvaluationPeriods periods before the evaluation. CloudWatch also reads a few older periods (the evaluation range)
  for points to use in place of missing ones. Their number is not documented, so each scenario is evaluated with none and with two.
- If the range has at least EvaluationPeriods real points, the most recent ones decide, and missing ones do not matter.
- Otherwise as few missing points as possible are filled in: as breaching, as not breaching, or, for `missing` and `ignore`, not at all.
  Then a range without any point is INSUFFICIENT_DATA (`missing`) or no change (`ignore`); with `ignore` a state changes to ALARM only when
  enough real points breach.
- DatapointsToAlarm breaching points, by default all, are ALARM. Otherwise OK.
- An alarm starts in INSUFFICIENT_DATA. A message is sent only when the state changes, and only for a state that has an action.

No alarm uses metric math; template_checks.py refuses it. A scenario lists the values that the functions emit, and when.
"""

import sys

from sam_template import TABLE, VARIANTS, Deployment

HOUR, DAY, MINUTE = 3600, 86_400, 60
BREACHES = {
    "GreaterThanThreshold": lambda value, threshold: value > threshold,
    "GreaterThanOrEqualToThreshold": lambda value, threshold: value >= threshold,
    "LessThanThreshold": lambda value, threshold: value < threshold,
}
STATISTICS = {"Maximum": max, "Sum": sum, "SampleCount": len}
OK, ALARM, NO_DATA = "OK", "ALARM", "INSUFFICIENT_DATA"
ACTIONS = {OK: "OKActions", ALARM: "AlarmActions", NO_DATA: "InsufficientDataActions"}


class Alarm:
    def __init__(self, properties, older):
        self.properties = properties
        self.period = int(properties["Period"])
        self.periods = int(properties["EvaluationPeriods"])
        self.to_alarm = int(properties.get("DatapointsToAlarm", self.periods))
        self.threshold = float(properties["Threshold"])
        self.missing = properties["TreatMissingData"]
        self.breaches = BREACHES[properties["ComparisonOperator"]]
        self.statistic = STATISTICS[properties["Statistic"]]
        self.older = older
        self.state = NO_DATA

    def points(self, series, now):
        """For each period of the range, newest first: whether it breaches, or None without a point."""
        found = []
        for back in range(self.periods + self.older):
            end = now - back * self.period
            values = [value for at, value in series if end - self.period <= at < end]
            found.append(self.breaches(self.statistic(values), self.threshold) if values else None)
        return found

    def evaluate(self, series, now):
        """Updates the state. Returns the message that is sent, or None."""
        points = self.points(series, now)
        real = [point for point in points if point is not None]
        before, self.state = self.state, self.judge(real)
        changed = before != self.state
        return self.state if changed and ACTIONS[self.state] in self.properties else None

    def judge(self, real):
        if len(real) >= self.periods:
            return ALARM if sum(real[: self.periods]) >= self.to_alarm else OK
        absent = self.periods - len(real)
        if self.missing == "breaching":
            return ALARM if sum(real) + absent >= self.to_alarm else OK
        if self.missing == "notBreaching":
            return ALARM if sum(real) >= self.to_alarm else OK
        if not real:
            return NO_DATA if self.missing == "missing" else self.state
        if self.missing == "ignore":
            # Only breaching points, but too few: no change. A point that does not breach is OK.
            if sum(real) >= self.to_alarm:
                return ALARM
            return self.state if all(real) else OK
        return ALARM if all(real) or sum(real) >= self.to_alarm else OK


def counts(value, days, start=0, late=0):
    """A value for every scheduled count: 00:05, 06:05, 12:05, 18:05, every second one `late` minutes late. `value` takes the time."""
    times = (start + number * 6 * HOUR + (5 + late * (number % 2)) * MINUTE for number in range(int(days * 4)))
    return [(at, value(at)) for at in times if value(at) is not None]


def every(minutes, value, days):
    return [(at, value(at)) for at in range(0, int(days * DAY), minutes * MINUTE) if value(at) is not None]


def between(first, last, yes, no=None):
    return lambda at: yes if first <= at < last else no


def scenarios():
    """Each: the alarm, a description, the series, when the alarm is created, the number of days, and the messages that must be sent."""
    for minutes in (0, 15):
        def on(value, days, minutes=minutes):
            return counts(value, days, late=minutes)

        year = 365 * DAY
        # ---- overdue: the metrics job decides, the alarm reports it.
        yield "overdue", "cleanup fails for three days, then works", on(between(2 * DAY, 3 * DAY, 1, 0), 6), 0, 6, [OK, ALARM, OK]
        yield "overdue", "every run completes", on(lambda at: 0, 10), 0, 10, [OK]
        yield "overdue", "first day of a neglected table", on(lambda at: 0, 1), 0, 1, [OK]
        yield "overdue", "dry for a week, when nothing is emitted, then delete", on(between(0, 7 * DAY, None, 0), 10), 7 * DAY, 10, [OK]
        yield "overdue", "paused for one day", on(lambda at: 0, 4), 0, 4, [OK]
        yield "overdue", "paused for four days: a forgotten pause", on(between(2 * DAY, 4 * DAY, 1, 0), 5), 0, 5, [OK, ALARM, OK]
        yield "overdue", "the table's stream is recreated, and a deployment follows", on(between(3 * DAY, 3.5 * DAY, 1, 0), 6), 0, 6, [OK, ALARM, OK]
        yield "overdue", "counts stop while it is in ALARM: no change", on(between(2 * DAY, 3 * DAY, 1, 0), 3), 0, 8, [OK, ALARM]
        # ---- backlog-old
        months = 90 * DAY
        yield "backlog-old", "first day of a neglected table", on(between(0, 1 * DAY, months, 3 * HOUR), 4), 0, 4, []
        yield "backlog-old", "dry for a week, when nothing is emitted, then delete", \
            on(lambda at: None if at < 7 * DAY else months if at < 8 * DAY else HOUR, 12), 7 * DAY, 12, []
        yield "backlog-old", "cleanup fails for ten days", on(lambda at: at if at < 10 * DAY else HOUR, 12), 0, 12, [ALARM]
        yield "backlog-old", "TTL off, cleanup on", on(lambda at: at % DAY, 12), 0, 12, []
        yield "backlog-old", "an account without traffic", on(lambda at: 0, 12), 0, 12, []
        yield "backlog-old", "counts stop before it fired", on(lambda at: 6 * DAY if at < DAY else None, 4), 0, 4, []
        # ---- ttl-off
        yield "ttl-off", "an operator turns TTL off", on(between(3 * DAY, year, 0, 1), 5), 0, 5, [ALARM]
        yield "ttl-off", "first count before TTL is on", on(between(0, 6 * HOUR, 0, 1), 5), 0, 5, []
        yield "ttl-off", "dry for a week, when nothing is emitted, then delete", on(between(0, 7 * DAY, None, 1), 9), 7 * DAY, 9, []
        yield "ttl-off", "an account without traffic", on(lambda at: 1, 5), 0, 5, []
        # ---- counts-stopped
        yield "counts-stopped", "metrics-emitter fails from the third day on", on(between(0, 3 * DAY, 1000), 6), 0, 6, [NO_DATA]
        yield "counts-stopped", "one count fails", on(lambda at: None if 3 * DAY <= at < 3 * DAY + 6 * HOUR else 1000, 6), 0, 6, []
        yield "counts-stopped", "every count arrives", on(lambda at: 1000, 6), 0, 6, []
        yield "counts-stopped", "a new stack, before its first count", on(between(0, DAY, None, 5), 3), 0, 3, []
        yield "counts-stopped", "an account without traffic: the table is still counted", on(lambda at: 0, 6), 0, 6, []
        # ---- too-many-rows
        yield "too-many-rows", "the table grows past the limit", on(lambda at: 900_000 + at, 3), 0, 3, [ALARM]
        yield "too-many-rows", "the table is below the limit", on(lambda at: 900_000, 3), 0, 3, []
    # ---- failures-waiting: SQS publishes every minute for an active queue, and nothing for one that is idle for six hours.
    yield "failures-waiting", "a function fails", list(every(1, between(DAY, 2 * DAY, 1), 2)), 0, 2, [ALARM]
    yield "failures-waiting", "a function fails, and the message is deleted", \
        list(every(1, lambda at: 1 if DAY <= at < DAY + HOUR else 0 if DAY <= at < DAY + 7 * HOUR else None, 2)), 0, 2, [ALARM]
    yield "failures-waiting", "a schedule is off: nothing is ever sent", [], 0, 2, []
    yield "failures-waiting", "an account without traffic", list(every(1, lambda at: 0, 1)), 0, 1, []
    # ---- cascade-behind: a point for each five minutes in which something was delivered, in milliseconds.
    yield "cascade-behind", "records fail again and again", list(every(5, lambda at: (at + 1) * 1000, 0.2)), 0, 0.3, [ALARM]
    yield "cascade-behind", "one slow batch", list(every(5, lambda at: 4_000_000 if at == 6 * HOUR else 1000, 0.5)), 0, 0.5, []
    yield "cascade-behind", "half an hour behind all day", list(every(5, lambda at: 1_800_000, 0.3)), 0, 0.3, []
    yield "cascade-behind", "an account without traffic", [], 0, 1, []
    yield "cascade-behind", "a batch an hour", list(every(60, lambda at: 60_000, 1)), 0, 1, []
    # ---- backlog-failed
    yield "backlog-failed", "an execution fails", [(DAY, 1)], 0, 2, [ALARM]
    yield "backlog-failed", "executions succeed", [(DAY, 0)], 0, 2, []
    yield "backlog-failed", "nothing is started", [], 0, 2, []


def messages(properties, series, created, days, older):
    """The messages that are sent, with an evaluation every five minutes after the alarm's creation."""
    alarm = Alarm(properties, older)
    step = min(5 * MINUTE, alarm.period)
    sent = [alarm.evaluate(near(series, now, alarm), now) for now in range(created + step, int(days * DAY) + 1, step)]
    return [message for message in sent if message]


def near(series, now, alarm):
    reach = alarm.period * (alarm.periods + alarm.older)
    return [(at, value) for at, value in series if now - reach <= at < now]


OTHERS = {
    "GreaterThanThreshold": "LessThanThreshold",
    "GreaterThanOrEqualToThreshold": "LessThanThreshold",
    "LessThanThreshold": "GreaterThanThreshold",
}


def mistakes(properties):
    """The alarm with its comparison reversed, and with thresholds that are far too high and too low."""
    yield "another comparison", {**properties, "ComparisonOperator": OTHERS[properties["ComparisonOperator"]]}
    threshold = float(properties["Threshold"])
    # For an alarm on missing points, a lower threshold changes nothing.
    lower = [] if properties["Statistic"] == "SampleCount" else [threshold / 10 - 1]
    for other in (threshold * 10 + 10, *lower):
        yield f"a threshold of {other}", {**properties, "Threshold": str(other)}


def undetected(name, properties, cases):
    """Mistakes in an alarm that no scenario detects."""
    for mistake, wrong in mistakes(properties):
        if all(messages(wrong, series, created, days, 0) == expected for series, created, days, expected in cases):
            yield f"{name} with {mistake} sends the same messages in every scenario: a scenario is missing"


def main():
    alarms = {properties["AlarmName"].split("-", 1)[1]: properties
              for _, properties in Deployment(VARIANTS["everything given"]).everything("AWS::CloudWatch::Alarm")}
    alarms["too-many-rows"] = {**alarms["too-many-rows"], "Threshold": "1000000"}
    assert all(d["Value"] == TABLE for alarm in alarms.values() for d in alarm["Dimensions"] if d["Name"] == "Table")
    fired, quiet, number, failures = set(), set(), 0, []
    for name, scenario, series, created, days, expected in scenarios():
        (fired if set(expected) - {OK} else quiet).add(name)
        for older in (0, 2):
            got = messages(alarms[name], series, created, days, older)
            if got != expected:
                failures.append(f"{name}, {scenario}, {older} older periods: sends {got or 'nothing'}, should send {expected or 'nothing'}")
            number += 1
    for name, properties in alarms.items():
        failures += undetected(name, properties, [scenario[2:] for scenario in scenarios() if scenario[0] == name])
    for name in sorted(set(alarms) - (fired & quiet)):
        failures.append(f"{name} has no scenario in which it fires, or none in which it does not")
    if failures:
        sys.exit("\n".join(f"alarms.py: {failure}" for failure in failures))
    print(f"alarms: {len(alarms)} evaluated in {number} scenarios; each fires only where it must")


if __name__ == "__main__":
    main()
