export { fromImage, toImageData } from "./image";
export { tensor, Tensor } from "./tensor";
import { Engine } from "./engine";
import { layOut } from "./layout";
import { Recipe } from "./recipe";
import { openFile } from "./file";
import { readHeader, writeFile } from "./safetensors";
import { seededState, Philox } from "./generators";
export const x = [Engine, layOut, Recipe, openFile, readHeader, writeFile, seededState, Philox];
