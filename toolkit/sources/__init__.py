"""Tools from elsewhere, each as values for a registry."""
