"""The version of Brimful, which the package's metadata takes from here."""

VERSION = "0.2.0"
