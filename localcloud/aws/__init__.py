"""The simulated AWS of the local cloud: moto, with the behavior it lacks, plus simulated kubelets.

Start it with ``python -m localcloud.aws.server --port P --state DIR --kubeconfig-json FILE --delays short``. The
control endpoint for tests and people is described in :mod:`localcloud.aws.control`.
"""
