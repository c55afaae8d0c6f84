/** One Python at which several take turns: the cells of a page, or one script alone. It is loaded by the first Run. */
import type { PageEvent, RunResult, StartOptions } from "./interpreter";
import { Session, type State, Stopped } from "./session";

export type SeatEvent = PageEvent | { event: "state"; state: State };

const NAME = "cell.py";
const INTERRUPTED: RunResult = { status: 130, line: 0 };

export class Seats {
  readonly #session: Session;
  readonly #seats = new Set<Seat>();
  #last: Promise<unknown> = Promise.resolve(); // ends when all turns that were asked for are over
  #turn: Seat | undefined; // the last one stays: a task that goes on may still print
  #asked = false;
  #count = 0;

  constructor(options: Pick<StartOptions, "base" | "device" | "packages">) {
    this.#session = new Session(options, {
      onEvent: (event) => this.#turn?.tell(event),
      onState: (state) => this.#turn?.tell({ event: "state", state }),
      onDevice() {},
    });
  }

  seat(tell: (event: SeatEvent) => void): Seat {
    const seat = new Seat(this, tell);
    this.#seats.add(seat);
    return seat;
  }

  /** Do this once those before have had their turn, Python is there, and it is still wanted. */
  take(
    seat: Seat,
    isWanted: () => boolean,
    work: (session: Session, number: number) => Promise<RunResult>,
  ): Promise<RunResult> {
    const turn = this.#last.then(async () => {
      if (!isWanted()) return INTERRUPTED;
      this.#turn = seat;
      await this.#start();
      return isWanted() ? work(this.#session, ++this.#count) : INTERRUPTED;
    });
    this.#last = turn.catch(() => {});
    return turn;
  }

  answer(line: string | undefined): void {
    this.#session.answer(line);
  }

  /** Interrupt what this seat runs, if it does: whether the variables are kept. */
  async stop(seat: Seat): Promise<boolean> {
    if (seat !== this.#turn || this.#session.state !== "busy") return true;
    const kept = await this.#session.stop();
    if (!kept) for (const each of this.#seats) each.lost();
    return kept;
  }

  async #start(): Promise<void> {
    if (this.#asked && this.#session.state !== "failed") return;
    this.#asked = true;
    await this.#session.restart();
  }
}

/** One of those who take turns. */
export class Seat {
  readonly #seats: Seats;
  #used = false; // there are variables of this one
  #cancel: (() => void) | undefined; // what was asked for, and Python has not begun

  constructor(
    seats: Seats,
    readonly tell: (event: SeatEvent) => void,
  ) {
    this.#seats = seats;
  }

  /** Run a script that starts clean. */
  run(source: string): Promise<RunResult> {
    return this.#take((session) => session.run(source, NAME));
  }

  /** Run a cell: in the namespace that all have in common, and the value of its last expression is shown. */
  runCell(source: string): Promise<RunResult> {
    return this.#take((session, number) => session.runCells([{ number, first: 1, text: source }], source, NAME, false));
  }

  evaluate(source: string): Promise<RunResult> {
    return this.#take(async (session) => ({ status: await session.evaluate(source), line: 0 }));
  }

  answer(line: string | undefined): void {
    this.#seats.answer(line);
  }

  async stop(): Promise<void> {
    if (this.#cancel) this.#cancel();
    else await this.#seats.stop(this);
  }

  lost(): void {
    const text = "The script did not answer: Python was started again, and its variables are gone.\n";
    if (this.#used) this.tell({ event: "output", stream: "note", text });
    this.#used = false;
  }

  #take(work: (session: Session, number: number) => Promise<RunResult>): Promise<RunResult> {
    let wanted = true;
    const cancelled = new Promise<RunResult>((resolve) => {
      this.#cancel = () => {
        wanted = false;
        this.#cancel = undefined;
        resolve(INTERRUPTED);
      };
    });
    const done = this.#seats.take(
      this,
      () => wanted,
      (session, number) => {
        this.#cancel = undefined;
        this.#used = true;
        return work(session, number).catch(interrupted);
      },
    );
    return Promise.race([cancelled, done]);
  }
}

/** Its Python was ended by Stop. */
function interrupted(error: unknown): RunResult {
  if (error instanceof Stopped) return INTERRUPTED;
  throw error;
}
