"""The command line of a module: LightningCLI."""
