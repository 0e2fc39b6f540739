"""The com.microsoft operators that exporters, optimizers and quantizers emit."""
