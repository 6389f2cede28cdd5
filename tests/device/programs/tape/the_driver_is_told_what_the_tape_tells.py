from tests.device.driver_log import main

main()
