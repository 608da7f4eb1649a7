#error "CUB is not modelled on the CPU backend"
