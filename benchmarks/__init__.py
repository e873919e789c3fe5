"""What a start and a call cost, beside the least that they could cost (docs/specs/benchmarks.md).

python -m benchmarks [--smoke] [--only NAME] [--json]
"""
