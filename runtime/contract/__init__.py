"""The contracts that plug-ins implement: Format, Architecture, QuantizationScheme, weight names and metadata."""
