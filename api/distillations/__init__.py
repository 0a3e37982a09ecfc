"""Full distillations: what the service and the command line do for one."""
