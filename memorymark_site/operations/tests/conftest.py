from analyses.tests.conftest import fake_engine, member

__all__ = ["fake_engine", "member"]
