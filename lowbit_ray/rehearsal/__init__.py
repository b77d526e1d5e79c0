"""`lowbit engine test`: a participant's engine on their own machine, through what the cluster will ask of it."""
