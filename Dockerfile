# mcc in an image of nothing else: docker build -t mcc . && docker run --rm -v "$PWD:/work" mcc net.onnx -o net.so
FROM debian:12 AS build
RUN apt-get update -q && apt-get install -y -q --no-install-recommends make sudo ca-certificates xz-utils
COPY . /mcc
WORKDIR /mcc
RUN make deps && make -j"$(nproc)" build/dist/mcc

FROM scratch
COPY --from=build /mcc/build/dist/mcc /bin/mcc
WORKDIR /work
ENV MCC_CACHE=off
ENTRYPOINT ["/bin/mcc"]
