"""The fixtures that start local clouds, for every test below this directory."""

from localcloud.tests.fixtures import cloud, private_cloud, start_cloud, unique  # noqa: F401
