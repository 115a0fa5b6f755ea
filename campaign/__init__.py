"""The campaign of faults: random worlds, changes and perturbations against a controller, judged from logs alone.

docs/reliability.md says what it proves, how to run it, and how to add a perturbation.
"""
