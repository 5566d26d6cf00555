"""Disagreements that were looked at and are no defect of mcc, or are not decided: (kind, operator or "", pattern, whose, why).

A verdict is known when its kind is the row's, the pattern is found in its text, and the operator is among the nodes of the
reduced network. `theirs`: ONNX Runtime is wrong, or not defined there; `open`: not settled. docs/numerics.md says more of
those where the meaning of an operator was decided.
"""
import re

KNOWN = [
]


def known(verdict, ops):
    """The row that explains a verdict, or None."""
    return next((row for row in KNOWN if row[0] == verdict.kind and (not row[1] or row[1] in ops) and re.search(row[2], verdict.text)),
                None)
