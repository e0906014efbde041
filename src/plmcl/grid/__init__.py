"""Many small trainings on one machine: a table of methods and settings, over seeds."""
