"""Reads metrics from the standard input as Prometheus's own parser does, checks what must hold of any such
page, and prints the samples as JSON: an object of name and labels, written as in the text, to numbers.

The parser calls a counter's samples `…_total` whatever they were called; so does the output."""

import json
import math
import sys
from collections import defaultdict

from prometheus_client.parser import text_string_to_metric_families

text = sys.stdin.read()
samples = {}
families = set()
for family in text_string_to_metric_families(text):
    assert family.name not in families, f"{family.name} is there twice"
    families.add(family.name)
    assert family.documentation, f"{family.name} says nothing of itself"
    assert family.type in ("counter", "gauge", "histogram"), (family.name, family.type)
    assert family.samples, f"{family.name} has no sample"
    buckets = defaultdict(list)
    sums, counts = {}, {}
    for sample in family.samples:
        labels = dict(sample.labels)
        key = sample.name + json.dumps(labels, sort_keys=True, separators=(",", ":"))
        assert key not in samples, f"{key} is there twice"
        samples[key] = sample.value
        assert math.isfinite(sample.value), key
        if family.type in ("counter", "histogram"):
            assert sample.value >= 0, key
        if family.type != "histogram":
            continue
        end = labels.pop("le", None)
        of = json.dumps(labels, sort_keys=True)
        if sample.name == family.name + "_bucket":
            buckets[of].append((float(end), sample.value))
        elif sample.name == family.name + "_count":
            counts[of] = sample.value
        elif sample.name == family.name + "_sum":
            sums[of] = sample.value
        else:
            raise AssertionError(f"{key} is no part of a histogram")
    if family.type == "histogram":
        assert buckets.keys() == counts.keys() == sums.keys(), family.name
    for of, row in buckets.items():
        assert row == sorted(row), f"{family.name}{of}: {row}"
        assert all(a[0] < b[0] and a[1] <= b[1] for a, b in zip(row, row[1:])), (family.name, row)
        assert row[-1] == (math.inf, counts[of]), f"{family.name}{of}: {row[-1]}, {counts[of]}"
        least = sum((b[1] - a[1]) * a[0] for a, b in zip(row, row[1:]))
        assert sums[of] >= least, f"{family.name}{of}: the sum {sums[of]} is less than {least}"
print(json.dumps(samples))
