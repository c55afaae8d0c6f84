/** The module of the threads that run guests, or have their models. */

import { compilerOf, type PyodideSettings } from "./compiler";
import { reader } from "./reader";
import { serve } from "./worker";

serve(reader, (settings) => (settings === null ? null : compilerOf(settings as PyodideSettings)));
