"""Pages and plots made from result files."""
