// Numbers and times as people read them; every quantity with its unit.

const NONE = "–";
const numbers = new Map();

/** A number with so many digits after the point. */
export function fixed(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  if (!numbers.has(digits)) {
    const looks = { minimumFractionDigits: digits, maximumFractionDigits: digits };
    numbers.set(
      digits,
      new Intl.NumberFormat("en", { ...looks, roundingMode: "halfEven" }), // as on the command line
    );
  }
  return numbers.get(digits).format(value).replace("-", "−");
}

export const whole = (value) => fixed(value, 0);
export const ms = (value) => (value == null ? NONE : `${fixed(value, value < 10 ? 2 : 1)} ms`);
/** Two latencies, with as many digits each. */
export const msRange = (low, high) => `${fixed(low, high < 10 ? 2 : 1)} to ${ms(high)}`;
export const millions = (value) => (value == null ? NONE : `${fixed(value, 1)} M`);
export const percent = (share, digits = 0) =>
  share == null ? NONE : `${fixed(share * 100, digits)}\u00a0%`;
/** A difference of scores, in points with its sign. */
export const signed = (value) => `${value > 0 ? "+" : ""}${fixed(100 * value, 1)}`;
export const plural = (count, one, many = `${one}s`) => `${whole(count)} ${count === 1 ? one : many}`;
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

const moments = new Intl.DateTimeFormat("en-GB", {
  day: "numeric", month: "short", hour: "2-digit", minute: "2-digit",
});
const seconds = new Intl.DateTimeFormat("en-GB", {
  day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit",
});

export const moment = (text) => (text ? moments.format(new Date(text)) : NONE);
export const exactMoment = (text) => (text ? seconds.format(new Date(text)) : NONE);

/** A span of time in its two largest units. */
export function duration(milliseconds) {
  if (!Number.isFinite(milliseconds)) return NONE;
  const total = Math.max(0, Math.round(milliseconds / 1000));
  const [days, hours] = [Math.floor(total / 86400), Math.floor((total % 86400) / 3600)];
  const [minutes, rest] = [Math.floor((total % 3600) / 60), total % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  if (minutes >= 5) return `${minutes} min`;
  return minutes ? `${minutes} min ${rest} s` : `${rest} s`;
}

/** The five parts of an architecture. */
export function parts(architecture) {
  const [layers, heads, hidden, intermediate, activation] = architecture.split(",");
  return {
    layers: Number(layers), heads: Number(heads), hidden: Number(hidden),
    intermediate: Number(intermediate), activation,
  };
}
