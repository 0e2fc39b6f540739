"""Products in which weight rows stand side by side in registers."""
