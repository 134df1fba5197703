from analyses.conftest import fake_engine, member

__all__ = ["fake_engine", "member"]
