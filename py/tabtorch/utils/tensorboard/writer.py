"""`SummaryWriter`: what a training loop logs, into TensorBoard's event files."""

from __future__ import annotations

import os
import socket
import time
from datetime import datetime
from typing import Any

from tabtorch.utils.tensorboard import _embeddings, _graphs, _histograms, _live, _pictures, summary
from tabtorch.utils.tensorboard._records import EventFileWriter
from tabtorch.utils.tensorboard._wire import Message

__all__ = ["FileWriter", "SummaryWriter"]


class FileWriter:
    """An event file in a folder, and the events and summaries that go into it."""

    def __init__(self, log_dir: Any, max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = "") -> None:
        """Makes the folder, and a file in it. max_queue: so many events wait, at most; flush_secs: for so long, where more come."""
        self.event_writer = EventFileWriter(log_dir, max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """The folder of the file."""
        return self.event_writer.get_logdir()

    def add_event(self, event: Any, step: Any = None, walltime: float | None = None) -> None:
        """event: an Event, of this package or of the protobuf package. Its time is set, and its step if there is one."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: Any, global_step: Any = None, walltime: float | None = None) -> None:
        """summary: a Summary, of `torch.utils.tensorboard.summary` or of the protobuf package."""
        self.add_event(Message("Event", summary=summary), global_step, walltime)

    def add_graph(self, graph_profile: Any, walltime: float | None = None) -> None:
        """graph_profile: a GraphDef and its RunMetadata."""
        graph, stats = (each.SerializeToString() for each in graph_profile)
        self.add_event(Message("Event", graph_def=graph), None, walltime)
        metadata = Message("TaggedRunMetadata", tag="step1", run_metadata=stats)
        self.add_event(Message("Event", tagged_run_metadata=metadata), None, walltime)

    def flush(self) -> None:
        """What waits is written to the file."""
        self.event_writer.flush()

    def close(self) -> None:
        """Flushes, and closes the file."""
        self.event_writer.close()

    def reopen(self) -> None:
        """After `close`: what comes goes into a new file of the folder."""
        self.event_writer.reopen()


class SummaryWriter:
    """Writes scalars, histograms, images and more into a folder that `tensorboard --logdir` reads.

    In the page, scalars are also drawn as live charts. A scalar may be a tensor on the GPU: the loop does not wait for it; it is
    read with the others that wait, when the file is written.
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        """log_dir: the folder; left out, runs/DATE_HOST and `comment`. purge_step: TensorBoard hides what an earlier run wrote into
        the folder from this step on. max_queue, flush_secs: events that wait at most, and for how long, where more come.
        filename_suffix: of the name of the file.
        """
        if not log_dir:
            now = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = log_dir
        self.purge_step = purge_step
        self.max_queue = max_queue
        self.flush_secs = flush_secs
        self.filename_suffix = filename_suffix
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self.default_bins = _histograms.default_bins()
        self._projector = ""
        self._live = True
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        """The writer of the folder. After `close`, a new one."""
        if self.all_writers is None or self.file_writer is None:
            self.file_writer = self._new_writer(self.log_dir)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                step, self.purge_step = self.purge_step, None
                self.file_writer.add_event(Message("Event", step=step, file_version="brain.Event:2"))
                log = Message("SessionLog", status=1)  # start
                self.file_writer.add_event(Message("Event", step=step, session_log=log))
        return self.file_writer

    def _new_writer(self, folder: Any) -> FileWriter:
        return FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)

    def _add(self, summary: Any, global_step: Any = None, walltime: float | None = None) -> None:
        self._get_file_writer().add_summary(summary, global_step, walltime)

    def get_logdir(self) -> Any:
        """The folder of the files, as it was given."""
        return self.log_dir

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """A number, or a tensor or array of one element, at a step. AssertionError for more elements, TypeError for complex ones.

        new_style: as a tensor of the format, and then in 64 bits with double_precision. In the page: "loss/train" is the line "train"
        of the chart "loss".
        """
        found = summary.scalar(tag, scalar_value, new_style=new_style, double_precision=double_precision)
        self._add(found, global_step, walltime)
        if self._live:
            _live.scalar(str(self.log_dir), tag, summary.number(found), global_step)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: dict[str, Any], global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Several scalars of one chart: line -> value. Each line is a run of its own, in the folder MAIN_LINE below the writer's."""
        walltime = time.time() if walltime is None else walltime
        logdir = self._get_file_writer().get_logdir()
        writers = self.all_writers
        assert writers is not None
        lines = {}
        for tag, value in tag_scalar_dict.items():
            folder = f"{logdir}/{main_tag.replace('/', '_')}_{tag}"
            if folder not in writers:
                writers[folder] = self._new_writer(folder)
            found = summary.scalar(main_tag, value)
            writers[folder].add_summary(found, global_step, walltime)
            lines[tag] = summary.number(found)
        _live.show(str(self.log_dir), main_tag, lines, global_step)

    def add_tensor(self, tag: str, tensor: Any, global_step: Any = None, walltime: float | None = None) -> None:
        """All elements of a tensor of any shape. ValueError from 2 GB on, and for types that the format has no place for."""
        self._add(summary.tensor_proto(tag, tensor), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: Any = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """How often which values are in a tensor or array, of any shape.

        bins: "tensorflow" (limits that grow by a tenth each), how many, their limits, or a rule of NumPy, such as "auto". max_bins: of
        more, several become one. ValueError for no values and for bins that are none; NotImplementedError for the rule "stone".
        """
        limits = self.default_bins if isinstance(bins, str) and bins == "tensorflow" else bins
        self._add(summary.histogram(tag, values, limits, max_bins=max_bins), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: Any,
        max: Any,
        num: Any,
        sum: Any,
        sum_squares: Any,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """A histogram that was counted elsewhere: the upper limit of each bucket, and how many are in it. ValueError where there are
        not as many of the one as of the other.
        """
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        found = summary.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts)
        self._add(found, global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """A picture: uint8, or else from 0 to 1, with 1, 3 or 4 channels.

        img_tensor: (C, H, W), or what `dataformats` says: CHW, HWC, HW, NCHW, …. AssertionError where it has other dimensions.
        """
        self._add(summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Pictures, (N, C, H, W) or what `dataformats` says, with 1 or 3 channels: a grid, eight in a row."""
        self._add(summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Any,
        box_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: Any = None,
    ) -> None:
        """A picture with red boxes, (N, 4): left, top, right, bottom. NotImplementedError for labels, and for a rescale other than 1."""
        labels = [labels] if isinstance(labels, str) else labels
        if labels is not None and len(labels) != box_tensor.shape[0]:
            labels = None
        found = summary.image_boxes(tag, img_tensor, box_tensor, rescale, dataformats, labels)
        self._add(found, global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: Any = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """A figure of matplotlib, or a list of figures of one size, as a picture. close: it is closed then."""
        if isinstance(figure, list):
            drawn = _pictures.stacked([_pictures.of_figure(each, close) for each in figure])
            self.add_image(tag, drawn, global_step, walltime, dataformats="NCHW")
        else:
            self.add_image(tag, _pictures.of_figure(figure, close), global_step, walltime)

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: Any = None, fps: float = 4, walltime: float | None = None
    ) -> None:
        """NotImplementedError: it would need moviepy, which writes GIF files with ffmpeg."""
        raise NotImplementedError(
            "add_video needs moviepy and ffmpeg, which tabtorch does not use: add_images shows frames, a grid of them"
        )

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: Any = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """A sound, (L,) or (1, L), from -1 to 1: what is louder is cut off. AssertionError for other shapes."""
        self._add(summary.audio(tag, snd_tensor, sample_rate=sample_rate), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None) -> None:
        """A text, which TensorBoard shows as Markdown."""
        self._add(summary.text(tag, text_string), global_step, walltime)

    def add_onnx_graph(self, prototxt: Any) -> None:
        """NotImplementedError: other programs show ONNX files better."""
        raise NotImplementedError(
            "add_onnx_graph is not part of tabtorch: look at ONNX files with Netron, or use add_graph"
        )

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """What a module calls, as `torch.fx` traces it, in boxes of the modules that it has.

        input_to_model: inputs, one or a tuple, which tell the shapes. RuntimeError where torch.fx cannot trace the module, such as one
        whose Python looks at values. use_strict_trace is not used.
        """
        self._get_file_writer().add_graph(_graphs.graph(model, input_to_model, verbose))

    def add_embedding(
        self,
        mat: Any,
        metadata: Any = None,
        label_img: Any = None,
        global_step: Any = None,
        tag: str = "default",
        metadata_header: Any = None,
    ) -> None:
        """Points for the projector, (N, D), as files beside the event file.

        metadata: N labels, or N rows with the columns of `metadata_header`. label_img: (N, C, H, W). AssertionError for other shapes.
        """
        step = 0 if global_step is None else global_step
        logdir = self._get_file_writer().get_logdir()
        subdir = f"{str(step).zfill(5)}/{_encoded(tag)}"
        folder = os.path.join(logdir, subdir)
        if os.path.isdir(folder):
            print("warning: Embedding dir exists, did you set global_step for add_embedding()?")
        elif os.path.exists(folder):
            raise NotADirectoryError(f"Path: `{folder}` exists, but is a file. Cannot proceed.")
        _embeddings.write(mat, metadata, label_img, metadata_header, folder)
        self._projector += _embeddings.config(f"{tag}:{str(step).zfill(5)}", subdir, metadata, label_img)
        with open(os.path.join(logdir, "projector_config.pbtxt"), "w") as file:
            file.write(self._projector)

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: Any = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Precision and recall, of (N,) labels of 0 and 1 and (N,) predictions from 0 to 1, at 127 thresholds at most."""
        self._add(summary.pr_curve(tag, labels, predictions, num_thresholds, weights), global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: Any = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """A curve that was computed elsewhere: a number for each threshold. ValueError where they are not as many."""
        counts = (true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts)
        found = summary.pr_curve_raw(tag, *counts, precision, recall, num_thresholds, weights)
        self._add(found, global_step, walltime)

    def add_custom_scalars_multilinechart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Tags of scalars that share a chart."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Three tags of scalars: a line, and the lower and the upper end of what is shaded. AssertionError for another number."""
        if len(tags) != 3:
            raise AssertionError(f"Expected 3 tags, got {len(tags)}.")
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_custom_scalars(self, layout: dict[str, dict[str, Any]]) -> None:
        """Which scalars share a chart: category -> chart -> ["Multiline", tags] or ["Margin", three tags]. Once a writer."""
        self._add(summary.custom_scalars(layout))

    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: Any = None,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Points, their colours and triangles of them, each (B, N, 3). ValueError for other shapes."""
        self._add(summary.mesh(tag, vertices, colors, faces, config_dict), global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: dict[str, list[Any]] | None = None,
        run_name: str | None = None,
        global_step: Any = None,
    ) -> None:
        """Hyperparameters and what came of them, as a run of its own in the folder `run_name`, or the time, below the writer's.

        hparam_dict: name -> bool, int, float, str, None or a tensor of one element. metric_dict: name -> number. TypeError for what is
        no dict, ValueError for other values.
        """
        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        parts = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self._get_file_writer().get_logdir(), run_name or str(time.time()))
        with SummaryWriter(log_dir=folder) as writer:
            writer._live = False  # one point each is no chart
            for part in parts:
                writer._add(part, global_step)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    def flush(self) -> None:
        """What waits is written to the files."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Flushes, and closes the files. What is added later goes into a new one."""
        for writer in (self.all_writers or {}).values():
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _encoded(tag: str) -> str:
    """As the name of a folder."""
    return tag.replace("%", "%25").replace("/", "%2f").replace("\\", "%5c")
