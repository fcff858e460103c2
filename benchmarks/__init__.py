"""Speed beside other libraries; see README.md. A package of its own, since another one is installed under this name."""
