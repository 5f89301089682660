/* kernels/cpu/gelu.h - constants of GELU's tanh form.
 *
 *   gelu(g) = g/2 * (1 + tanh(v)),  v = sqrt(2/pi) * (g + 0.044715 g^3)
 * and 1 + tanh(v) = 2 / (1 + exp(-2v)), which loses nothing where tanh is near -1:
 *   z = g * fma(CUBE*g, g, LINEAR)  (= -2v);   gelu = g / (1 + exp(z))
 */
#ifndef QUIRE_KERNELS_CPU_GELU_H
#define QUIRE_KERNELS_CPU_GELU_H

#define GELU_LINEAR (-1.5957691216057308f) /* -2 sqrt(2/pi) */
#define GELU_CUBE (-0.07135481627159f)     /* 0.044715 of it */

#endif
