#include "graph/graph.h"
#include "train/trainer.h"
