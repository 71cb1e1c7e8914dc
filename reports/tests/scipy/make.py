#!/usr/bin/env python3
"""Computes the values that the statistics are checked against, with NumPy and SciPy, into values.json beside it.

Needs scipy 1.15 and numpy 2. The tests use the stored values; run this again only to add to them.
"""

import json
import pathlib

import numpy as np
from scipy import stats

rng = np.random.default_rng(20261129)


def rounded(values):
    return [round(float(v), 3) for v in values]


def quantiles():
    cases = []
    for n in (1, 2, 5, 6, 20, 101):
        values = rounded(rng.lognormal(4, 1, n))
        for p in (0.0, 0.05, 0.5, 0.9, 0.95, 0.99, 1.0):
            cases.append({
                "values": values,
                "p": p,
                "r7": float(np.quantile(values, p, method="linear")),
                "nearest_rank": float(np.quantile(values, p, method="inverted_cdf")),
            })
    return cases


def wilson():
    cases = []
    for hits, n in ((0, 6), (6, 6), (3, 17), (17, 17), (81, 263), (1, 1), (999, 1000)):
        for confidence in (0.9, 0.95):
            ci = stats.binomtest(hits, n).proportion_ci(confidence, method="wilson")
            cases.append({"hits": hits, "n": n, "confidence": confidence, "low": ci.low, "high": ci.high})
    return cases


def mann_whitney():
    cases = []
    for a, b, shift in ((3, 3, 0), (6, 6, 1), (6, 6, 3), (8, 12, 0.5), (20, 20, 0.3), (30, 25, 0.8)):
        x, y = rounded(rng.normal(0, 1, a)), rounded(rng.normal(shift, 1, b))
        exact = stats.mannwhitneyu(x, y, method="exact")
        cases.append({
            "a": x, "b": y, "exact": exact.pvalue,
            "second_greater": 1 - exact.statistic / (a * b),
        })
    return cases


def large():
    """Too large to count, with ties: a[i] = 7 i² mod 1009, b[i] = 5 i² mod 1013 + 20, for i below n."""
    cases = []
    for n in (300, 1000):
        x, y = [7 * i * i % 1009 for i in range(n)], [5 * i * i % 1013 + 20 for i in range(n)]
        cases.append({"n": n, "p": stats.mannwhitneyu(x, y, method="asymptotic").pvalue})
    return cases


def tied():
    """With ties: the exact distribution by permutation of all choices, as SciPy counts them."""
    cases = []
    for a, b in ((4, 5), (6, 6), (7, 3)):
        x, y = rounded(rng.integers(0, 4, a)), rounded(rng.integers(1, 5, b))

        def distance(x, y, axis=-1):
            both = np.concatenate([x, y], axis=axis)
            ranks = stats.rankdata(both, axis=axis)
            n = x.shape[axis]
            first = np.take(ranks, range(n), axis=axis).sum(axis=axis)
            return np.abs(first - n * (both.shape[axis] + 1) / 2)

        test = stats.permutation_test((x, y), distance, vectorized=True, n_resamples=np.inf, alternative="greater")
        cases.append({"a": x, "b": y, "p": float(test.pvalue)})
    return cases


def survival():
    cases = []
    for n, limit in ((12, 120), (30, 90), (40, 1000)):
        times = np.round(rng.lognormal(4, 0.7, n), 0)
        censored = times > limit
        times = np.minimum(times, limit)
        # Some are given up on before the limit.
        lost = rng.random(n) < 0.15
        censored |= lost
        data = stats.CensoredData.right_censored(times, censored)
        curve = stats.ecdf(data).sf
        interval = curve.confidence_interval(0.95, method="log-log")  # undefined, with a warning, at 0
        steps = []
        for i, t in enumerate(curve.quantiles):
            if ((times == t) & ~censored).any():
                low, high = interval.low.probabilities[i], interval.high.probabilities[i]
                ends = None if np.isnan(low) or np.isnan(high) else [float(low), float(high)]
                steps.append({"time": float(t), "survival": float(curve.probabilities[i]), "interval": ends})
        cases.append({"times": rounded(times), "censored": [bool(c) for c in censored], "steps": steps})
    return cases


def holm():
    cases = []
    for n in (1, 3, 8):
        p = rounded(rng.random(n) * 0.2)
        order = np.argsort(p, kind="stable")
        adjusted = np.empty(n)
        adjusted[order] = np.minimum(1, np.maximum.accumulate((n - np.arange(n)) * np.asarray(p)[order]))
        cases.append({"p": p, "adjusted": [float(v) for v in adjusted]})
    return cases


def variance():
    cases = []
    for sizes in ((6, 6, 6), (3, 7, 5, 4), (2, 9)):
        groups = [rounded(rng.normal(rng.normal(0, 3), 1, n)) for n in sizes]
        f = stats.f_oneway(*groups).statistic
        n, k = sum(sizes), len(sizes)
        within = sum((len(g) - 1) * np.var(g, ddof=1) for g in groups) / (n - k)
        size = (n - sum(s * s for s in sizes) / n) / (k - 1)
        cases.append({"groups": groups, "within": float(within), "between": float(max(0, (f - 1) * within / size))})
    return cases


def newcombe():
    """Newcombe 1998, table II, method 10: his printed intervals."""
    rows = [
        (56, 70, 48, 80, 0.0524, 0.3339), (9, 10, 3, 10, 0.1705, 0.8090), (6, 7, 2, 7, 0.0582, 0.8062),
        (5, 56, 0, 29, -0.0381, 0.1926), (0, 10, 0, 20, -0.1611, 0.2775), (0, 10, 0, 10, -0.2775, 0.2775),
        (10, 10, 0, 20, 0.6791, 1.0), (10, 10, 0, 10, 0.6075, 1.0),
    ]
    return [{"hits": [b, a], "n": [m2, n1], "low": low, "high": high} for a, n1, b, m2, low, high in rows]


values = {
    "quantiles": quantiles(), "wilson": wilson(), "mann_whitney": mann_whitney(), "tied": tied(),
    "large": large(),
    "survival": survival(), "holm": holm(), "variance": variance(), "newcombe": newcombe(),
}
path = pathlib.Path(__file__).with_name("values.json")
lines = (f'"{name}": [\n' + ",\n".join(json.dumps(case) for case in cases) + "\n]" for name, cases in values.items())
path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
