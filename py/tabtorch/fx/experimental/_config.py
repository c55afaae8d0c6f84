"""`torch.fx.experimental._config`: settings, of which none does anything here."""

translation_validation = False
print_specializations = False
inject_EVALUATE_EXPR_flip_equality_TESTING_ONLY = False
enrich_profiler_metadata = False
backed_size_oblivious = False
use_duck_shape = True
