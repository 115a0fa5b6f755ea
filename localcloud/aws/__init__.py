"""The simulated AWS of the local cloud: moto, made honest, plus simulated kubelets.

Start it with ``python -m localcloud.aws.server --port P --state DIR --kubeconfig-json FILE --delays short``.
What a test or a person can ask of it is described in :mod:`localcloud.aws.control`.
"""
