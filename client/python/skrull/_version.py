"""The version of the package: that of the project's CMakeLists.txt."""

__version__ = "0.1.0"
